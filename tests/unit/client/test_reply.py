"""Adding up an answer."""

from onegate.client.reply import Collector
from onegate.protocol.content import (
    ChunkKind,
    FinishReason,
    FunctionCall,
    Identity,
    TokenLogprob,
    ToolCall,
    Usage,
)
from onegate.protocol.messages import Chunk, Done, Notice, Timings

DONE = Done(
    id=1,
    rid="r1",
    finish_reason=FinishReason.LENGTH,
    usage=Usage(prompt_tok=3, output_tok=4),
    timings=Timings(queue_ms=1.0, e2e_ms=2.0),
    identity=Identity(engine="scripted", model="tiny"),
    notices=[Notice(code="cold", detail="it was")],
)


def test_kinds_do_not_mix() -> None:
    call = ToolCall(id="c", function=FunctionCall(name="f", arguments="{}"))
    collector = Collector()
    collector.add(Chunk(id=1, n_tok=1, kind=ChunkKind.THINKING, text="hm"))
    collector.add(Chunk(id=1, n_tok=1, text="a", token_ids=[5]))
    collector.add(Chunk(id=1, n_tok=1, text="b", token_ids=[6]))
    collector.add(Chunk(id=1, n_tok=1, kind=ChunkKind.TOOL_CALL, tool_call=call))
    logprob = TokenLogprob(token="b", logprob=-1.0)
    collector.add(Chunk(id=1, n_tok=0, logprobs=[logprob]))
    reply = collector.finish(DONE)
    assert (reply.text, reply.thinking, reply.tool_calls) == ("ab", "hm", [call])
    assert (reply.token_ids, reply.logprobs) == ([5, 6], [logprob])


def test_a_kind_of_a_newer_daemon_is_not_taken_for_text() -> None:
    collector = Collector()
    collector.add(Chunk(id=1, n_tok=1, kind=ChunkKind("humming"), text="mm"))
    assert collector.finish(DONE).text == ""


def test_what_the_daemon_counted_is_passed_on() -> None:
    reply = Collector().finish(DONE)
    assert (reply.text, reply.finish_reason, reply.usage) == ("", "length", DONE.usage)
    assert (reply.timings, reply.notices) == (DONE.timings, DONE.notices)
    assert (reply.identity, reply.rid) == (DONE.identity, "r1")
