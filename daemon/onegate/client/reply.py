"""The whole answer, collected from its pieces."""

from dataclasses import dataclass

from onegate.protocol.content import FinishReason, Identity, TokenLogprob, ToolCall, Usage
from onegate.protocol.messages import Chunk, Done, Notice, Timings


@dataclass(frozen=True, slots=True)
class Reply:
    """One finished answer.

    `usage` counts tokens as the engine did; `timings` are milliseconds, as its names say;
    `notices` tell what the caller should know about how this was answered; `identity` is what
    answered, in the engine's words. `rid` is the daemon-wide id, as in its log. `token_ids` and
    `logprobs` are empty unless the engine sent them.
    """

    text: str
    thinking: str
    tool_calls: list[ToolCall]
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    notices: list[Notice]
    identity: Identity
    rid: str
    token_ids: list[int]
    logprobs: list[TokenLogprob]


class Collector:
    """Adds up the chunks of one answer."""

    def __init__(self) -> None:
        self._text: dict[str, list[str]] = {"text": [], "thinking": []}
        self._tool_calls: list[ToolCall] = []
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprob] = []

    def add(self, chunk: Chunk) -> None:
        if chunk.tool_call is not None:
            self._tool_calls.append(chunk.tool_call)
        if chunk.text:
            self._text.setdefault(chunk.kind, []).append(chunk.text)
        self._token_ids += chunk.token_ids or ()
        self._logprobs += chunk.logprobs or ()

    def finish(self, done: Done) -> Reply:
        return Reply(
            text="".join(self._text["text"]),
            thinking="".join(self._text["thinking"]),
            tool_calls=self._tool_calls,
            finish_reason=done.finish_reason,
            usage=done.usage,
            timings=done.timings,
            notices=list(done.notices),
            identity=done.identity,
            rid=done.rid,
            token_ids=self._token_ids,
            logprobs=self._logprobs,
        )
