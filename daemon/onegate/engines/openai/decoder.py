"""The answer to one request, from events to items."""

from collections.abc import Iterator
from itertools import islice

import msgspec

from onegate.engines.base import (
    Accepted,
    EngineBroke,
    EngineChunk,
    EngineMalformed,
    EngineTooLarge,
    Finished,
    GenerateItem,
    Progress,
)
from onegate.engines.http.documents import short
from onegate.engines.openai.refusal import error_of
from onegate.engines.openai.shapes import Choice, Delta, Logprobs, Piece, UsagePiece
from onegate.engines.openai.sse import Events
from onegate.engines.openai.toolcalls import ToolCalls
from onegate.protocol.content import (
    ChunkKind,
    FinishReason,
    TokenLogprob,
    ToolCall,
    TopLogprob,
    Usage,
)

_DONE = b"[DONE]"
# A server may close a tool call or a thought behind the last token that was allowed.
_SPARE_TOK = 64
_BYTES_PER_TOK = 4
# An event has one choice, or one for each of some tokens. A line has room for as many empty ones as
# take half a second to look at.
_MAX_CHOICES = 64
_REASONS = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "content_filter": FinishReason.STOP,
    "eos": FinishReason.STOP,
}


class StreamDecoder:
    """See `http.dialect.Decoder`. `limit_tok` is the context, which a server that tells how long
    the prompt is must not be let exceed in silence; with `fits` the output is what is left of it.

    Where the server does not say what was used, tokens are those that came, and the prompt is
    estimated from its `prompt_bytes`; no prompt is longer than the context. With `top_logprobs`
    None nobody asked for log-probabilities, and none are passed on; else so many alternatives.
    """

    def __init__(
        self,
        *,
        prompt_bytes: int,
        max_tokens: int,
        limit_tok: int,
        fits: bool = False,
        top_logprobs: int | None = None,
    ) -> None:
        self._events = Events()
        self._reader = msgspec.json.Decoder(Piece)
        self._prompt_bytes = prompt_bytes
        self._max_tokens = max_tokens
        self._limit_tok = limit_tok
        self._fits = fits
        self._top_logprobs = top_logprobs
        self._calls = ToolCalls()
        self._accepted = False
        self._n_tok = 0
        self._usage: UsagePiece | None = None
        self._cached_tok: int | None = None
        self._reason: str | None = None

    def line(self, line: bytes) -> Iterator[GenerateItem]:
        data = self._events.line(line)
        if data is not None:
            yield from self._event(data)

    def end(self) -> Iterator[GenerateItem]:
        data = self._events.rest()
        if data is not None:
            yield from self._event(data)
        if data != _DONE:
            yield from self._finish("the engine's answer ended before its end")

    def _event(self, data: bytes) -> Iterator[GenerateItem]:
        if data == _DONE:
            yield from self._finish("the engine said it was done without saying why")
            return
        try:
            piece = self._reader.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise EngineMalformed(
                f"an event of the answer cannot be read: {short(str(error))}"
            ) from error
        if piece.error is not None:
            raise error_of(piece.error, began=self._accepted)
        if not self._accepted:
            yield from self._accept(piece)
        elif (progress := piece.prompt_progress) is not None and not self._n_tok:
            if progress.processed < progress.total:
                yield Progress(prefilled_tok=progress.processed)
        if piece.usage is not None:
            self._usage = piece.usage
        if len(piece.choices) > _MAX_CHOICES:
            raise EngineMalformed(f"an event of the answer has {len(piece.choices)} choices")
        for choice in piece.choices:
            if choice.index != 0:
                raise EngineMalformed("the engine gives several answers to one request")
            yield from self._choice(choice)
        if self._reason is not None and piece.usage is not None and not piece.choices:
            yield from self._finish("")

    def _accept(self, piece: Piece) -> Iterator[GenerateItem]:
        progress = piece.prompt_progress
        if progress is not None:
            need_tok = progress.total + (1 if self._fits else self._max_tokens)
            if need_tok > self._limit_tok:
                raise EngineTooLarge(need_tok=need_tok, limit_tok=self._limit_tok)
            self._cached_tok = progress.cache
        self._accepted = True
        yield Accepted(
            prompt_tok=None if progress is None else progress.total,
            cached_tok=None if progress is None else progress.cache,
        )

    def _choice(self, choice: Choice) -> Iterator[GenerateItem]:
        delta = choice.delta
        if self._reason is not None and _says(choice):
            raise EngineMalformed("the engine goes on behind its own end")
        logprobs = None
        if self._top_logprobs is not None:
            logprobs = _logprobs(choice.logprobs, self._top_logprobs)
        text = choice.text if delta is None else delta.content
        thought = None if delta is None else delta.reasoning_content or delta.reasoning
        if thought:
            yield self._chunk(thought, ChunkKind.THINKING, None if text else logprobs)
        if text or (logprobs and not thought):
            yield self._chunk(text or "", ChunkKind.TEXT, logprobs)
        if delta is not None and delta.tool_calls:
            yield from self._done_calls(self._calls.add_all(delta.tool_calls))
            yield EngineChunk(n_tok=self._new_tok(), kind=ChunkKind.TOOL_CALL)
        if choice.finish_reason is not None and self._reason is None:
            self._reason = choice.finish_reason
            yield from self._done_calls(self._calls.rest())

    def _done_calls(self, calls: list[ToolCall]) -> Iterator[GenerateItem]:
        for call in calls:
            yield EngineChunk(n_tok=0, kind=ChunkKind.TOOL_CALL, tool_call=call)

    def _chunk(
        self, text: str, kind: ChunkKind, logprobs: list[TokenLogprob] | None
    ) -> EngineChunk:
        n_tok = self._new_tok(len(logprobs) if logprobs else 1)
        return EngineChunk(n_tok=n_tok, text=text, kind=kind, logprobs=logprobs)

    def _new_tok(self, shown: int = 1) -> int:
        """How many tokens a piece stands for: by the server's running count where it has one."""
        said = None if self._usage is None else self._usage.completion_tokens
        n_tok = shown if said is None else max(0, min(said, self._max_tokens) - self._n_tok)
        self._n_tok += n_tok
        return n_tok

    def _finish(self, otherwise: str) -> Iterator[GenerateItem]:
        if self._reason is None:
            raise EngineBroke(otherwise)
        reason = _REASONS.get(self._reason)
        if reason is None:
            raise EngineBroke(f"the engine ended the answer: {short(self._reason)}")
        usage = self._usage or UsagePiece()
        output_tok = usage.completion_tokens
        if not self._is_plausible(output_tok):
            output_tok = self._n_tok
        assert output_tok is not None
        if output_tok > self._n_tok:
            # Tokens without text, or several in one piece: whoever adds up gets the same sum.
            yield EngineChunk(n_tok=output_tok - self._n_tok)
        details = usage.prompt_tokens_details
        cached_tok = self._cached_tok if details is None else details.cached_tokens
        prompt_tok = usage.prompt_tokens or 1 + self._prompt_bytes // _BYTES_PER_TOK
        prompt_tok = min(prompt_tok, self._limit_tok)
        yield Finished(
            finish_reason=reason,
            usage=Usage(prompt_tok=prompt_tok, output_tok=output_tok),
            cached_tok=None if cached_tok is None else min(cached_tok, prompt_tok),
        )

    def _is_plausible(self, output_tok: int | None) -> bool:
        """A server's count is taken where it agrees with what came: not less than half of it, and
        no more than was allowed."""
        if output_tok is None:
            return False
        return self._n_tok // 2 <= output_tok <= self._max_tokens + _SPARE_TOK


def _says(choice: Choice) -> bool:
    delta = choice.delta or Delta()
    thought = delta.reasoning_content or delta.reasoning
    return bool(choice.text or delta.content or delta.tool_calls or thought)


def _logprobs(found: Logprobs | None, top: int) -> list[TokenLogprob] | None:
    if found is None:
        return None
    if found.content:
        return [
            TokenLogprob(
                token=piece.token,
                logprob=piece.logprob,
                top=[TopLogprob(token=a.token, logprob=a.logprob) for a in piece.top_logprobs[:top]]
                if piece.top_logprobs and top
                else None,
            )
            for piece in found.content
        ]
    if found.tokens and found.token_logprobs:
        tops = found.top_logprobs or [None] * len(found.tokens)
        return [
            TokenLogprob(
                token=token,
                logprob=logprob,
                top=[TopLogprob(token=t, logprob=v) for t, v in islice(others.items(), top)]
                if others and top
                else None,
            )
            for token, logprob, others in zip(
                found.tokens, found.token_logprobs, tops, strict=False
            )
            if logprob is not None
        ]
    return None
