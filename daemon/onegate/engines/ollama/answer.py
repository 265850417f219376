"""From the lines of an answer to its items."""

import math
from collections.abc import Iterable, Iterator
from typing import Protocol

from onegate.engines.base import (
    Accepted,
    EngineBroke,
    EngineChunk,
    EngineMalformed,
    EngineTooLarge,
    Finished,
    GenerateItem,
)
from onegate.engines.http.documents import document, short
from onegate.engines.ollama.refusal import context_exceeded
from onegate.engines.ollama.shapes import Line, LogprobSaid, ToolCallSaid
from onegate.protocol.content import (
    ChunkKind,
    FinishReason,
    FunctionCall,
    TokenLogprob,
    ToolCall,
    TopLogprob,
    Usage,
)

_NS_PER_MS = 1e6
# As many alternatives as a request can ask for.
_MAX_TOP = 20
# A piece that came so many times on end, blanks aside, makes Ollama give up; 0.9.3 logs that and
# tells nobody, newer ones send an error line (`token repeat limit reached` in its llm/server.go).
_REPEATS = 30
_REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}


class Ear(Protocol):
    """Who hears what an answer says beside its text. Raises EngineErrors to end it."""

    def answered_from(self, host: str) -> None:
        """It was made at `host`, which is not this machine."""

    def waited_for_load(self, load_ms: float) -> None:
        """So long it was until a runner was in hand."""


class AnswerReader:
    """Reads the NDJSON of one request; see `http.dialect.Decoder`.

    A line counts as one token. What the last line counts beyond that, for tokens that had no text
    of their own, comes as a chunk without text. `max_context_tok` finds prompts that an old server
    has cut to fit, which it says to nobody.
    """

    def __init__(
        self, id: int, *, max_context_tok: int, ear: Ear, want_logprobs: bool = False
    ) -> None:
        self._id = id
        self._max_context_tok = max_context_tok
        self._ear = ear
        self._want_logprobs = want_logprobs
        self._accepted = False
        self._said_tok = 0
        self._tool_calls = 0
        self._piece = ""
        self._repeats = 0

    def line(self, line: bytes) -> Iterable[GenerateItem]:
        """The items of one line. Raises EngineBroke for an error line, EngineMalformed for what is
        none of Ollama's."""
        if not line.strip():
            return []
        return list(self._items(document(line, Line)))

    def end(self) -> Iterable[GenerateItem]:
        """Ollama ends every answer with `done`; a clean end without it is a cut."""
        why = ""
        if self._repeats >= _REPEATS:
            why = ": the model said one thing over and over, and Ollama gives such an answer up"
        raise EngineBroke(f"Ollama ended the answer without saying that it is done{why}")

    def _items(self, line: Line) -> Iterator[GenerateItem]:
        if line.error is not None:
            raise context_exceeded(line.error) or EngineBroke(f"Ollama says: {short(line.error)}")
        if line.remote_host:
            self._ear.answered_from(short(line.remote_host))
        if not self._accepted:
            self._accepted = True
            yield Accepted()
        message = line.message
        thinking = line.thinking if message is None else message.thinking
        text = line.response if message is None else message.content
        # One token may end the thought and begin the answer; it is counted once.
        if thinking:
            yield self._chunk(ChunkKind.THINKING, thinking, line, n_tok=1)
        if text or (not thinking and self._is_token(line)):
            yield self._chunk(ChunkKind.TEXT, text, line, n_tok=0 if thinking else 1)
        for said in (message.tool_calls if message is not None else None) or ():
            yield self._call(said)
        if line.done:
            yield from self._last(line)

    def _is_token(self, line: Line) -> bool:
        return not line.done and not (line.message is not None and line.message.tool_calls)

    def _chunk(self, kind: ChunkKind, text: str, line: Line, *, n_tok: int) -> EngineChunk:
        self._said_tok += n_tok
        piece = text.strip()
        self._repeats = self._repeats + 1 if piece == self._piece else 0
        self._piece = piece
        logprobs = None
        if self._want_logprobs and line.logprobs and n_tok:
            logprobs = [_logprob(said) for said in line.logprobs]
        return EngineChunk(n_tok=n_tok, text=text, kind=kind, logprobs=logprobs)

    def _call(self, said: ToolCallSaid) -> EngineChunk:
        try:
            # Nothing has looked into it so far.
            arguments = bytes(said.function.arguments).decode()
        except UnicodeDecodeError:
            raise EngineMalformed("Ollama sent a tool call that is no UTF-8") from None
        if not arguments.startswith("{"):
            raise EngineMalformed("Ollama sent a tool call whose arguments are no object")
        # Older servers give calls no id, and clients answer by one.
        id = said.id or f"call_{self._id}_{self._tool_calls}"
        self._tool_calls += 1
        self._said_tok += 1
        function = FunctionCall(name=said.function.name, arguments=arguments)
        return EngineChunk(
            n_tok=1, kind=ChunkKind.TOOL_CALL, tool_call=ToolCall(id=id, function=function)
        )

    def _last(self, line: Line) -> Iterator[GenerateItem]:
        reason = _REASONS.get(line.done_reason)
        if reason is None:
            raise EngineMalformed(
                f"Ollama ended the answer with {short(line.done_reason) or 'no reason'}, "
                "which is no answer"
            )
        prompt_tok = line.prompt_eval_count or 0
        if prompt_tok >= self._max_context_tok:
            raise EngineTooLarge(need_tok=prompt_tok + 1, limit_tok=self._max_context_tok)
        self._ear.waited_for_load(line.load_duration / _NS_PER_MS)
        counted_tok = line.eval_count or 0
        if counted_tok > self._said_tok:
            yield EngineChunk(n_tok=counted_tok - self._said_tok)
        yield Finished(
            finish_reason=FinishReason.TOOL_CALLS if self._tool_calls else reason,
            # Less than what was said would give back tokens that were used.
            usage=Usage(prompt_tok=prompt_tok, output_tok=max(counted_tok, self._said_tok)),
        )


def _logprob(said: LogprobSaid) -> TokenLogprob:
    top = None
    if said.top_logprobs is not None:
        top = [
            TopLogprob(token=one.token, logprob=_finite(one.logprob))
            for one in said.top_logprobs[:_MAX_TOP]
        ]
    return TokenLogprob(token=said.token, logprob=_finite(said.logprob), top=top)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise EngineMalformed("Ollama sent a log-probability that is no number")
    return value
