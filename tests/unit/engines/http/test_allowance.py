import pytest

from onegate.engines.base import EngineChunk, EngineMalformed, Finished
from onegate.engines.http.allowance import Allowance
from onegate.protocol.content import FinishReason, FunctionCall, TokenLogprob, ToolCall, Usage


def end(output_tok):
    usage = Usage(prompt_tok=1, output_tok=output_tok)
    return Finished(finish_reason=FinishReason.LENGTH, usage=usage)


def test_tokens_add_up_to_no_more_than_was_allowed():
    allowance = Allowance(5)
    said = [allowance.spent(EngineChunk(n_tok=n, text="x")) for n in (2, 2, 2, 2)]
    assert [chunk.n_tok for chunk in said] == [2, 2, 1, 0]
    assert all(chunk.text == "x" for chunk in said)
    assert allowance.ended(end(8)).usage.output_tok == 5
    assert allowance.ended(end(4)).usage.output_tok == 4


def test_a_piece_may_be_less_than_a_token_but_there_is_an_end_of_them():
    allowance = Allowance(2)
    for _ in range(64 + 16):
        allowance.spent(EngineChunk(n_tok=1, text="x"))
    with pytest.raises(EngineMalformed, match="2 tokens"):
        allowance.spent(EngineChunk(n_tok=0, text="x"))


def test_no_token_is_so_long():
    call = ToolCall(id="1", function=FunctionCall(name="f", arguments="x" * 70_000))
    for piece in (EngineChunk(n_tok=1, text="x" * 70_000), EngineChunk(n_tok=1, tool_call=call)):
        Allowance(100).spent(piece)
        with pytest.raises(EngineMalformed, match="beyond"):
            Allowance(4).spent(piece)


def test_a_piece_of_many_tokens_is_as_many_pieces():
    shown = [TokenLogprob(token="x", logprob=-1.0)] * 40
    allowance = Allowance(1)
    allowance.spent(EngineChunk(n_tok=1, text="x", logprobs=shown))
    with pytest.raises(EngineMalformed, match="beyond"):
        allowance.spent(EngineChunk(n_tok=0, logprobs=shown))
