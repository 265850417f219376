"""One request inside the embedded engine: its tokens, its text, its end."""

from collections.abc import Sequence as Tokens

from onegate.engines.base import EngineChunk, EngineRequest
from onegate.engines.host.detok import DecodeBatch, TokenText
from onegate.engines.host.pipeline import Handle
from onegate.engines.host.stops import ShownText, StopScanner
from onegate.engines.host.wire import Ended
from onegate.protocol.content import FinishReason, TokenLogprob, Usage

# What the library calls the end of a sequence.
_FINISHES = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}


class Sequence:
    """Holds a seat from `submit` until the library has freed it.

    `prefilled_tok` follows how the library hands out its steps, and begins with what is cached for
    certain: it is exact where no more is.
    """

    def __init__(
        self, request: EngineRequest, handle: Handle, *, prompt: list[int], cached_tok: int = 0
    ) -> None:
        self.id = request.id
        self.owner = request.cache_salt
        self.handle = handle
        self.text = TokenText()
        self.prompt_tok = len(prompt)
        self.resumed_tok = len(request.resume_tok_ids or ())
        self.prefilled_tok = cached_tok
        self._ids = [*prompt, *(request.resume_tok_ids or ())]
        self.output_tok = 0
        self.leaving = False
        self.told = False  # its end
        self.wants_logprobs = request.params.logprobs is True
        self._shown = ShownText(request.resume_shown_chars)
        self._stops = StopScanner(request.params.stop or ())

    @property
    def computed_tok(self) -> int:
        """Tokens that are to be computed before the first output."""
        return self.prompt_tok + self.resumed_tok

    @property
    def computed_ids(self) -> list[int]:
        """The tokens that are computed by now. The last one of the output would be by the next
        step."""
        return self._ids[:-1] if self.output_tok else self._ids[: self.prefilled_tok]

    @property
    def stopped(self) -> bool:
        """Whether a stop string is complete."""
        return self._stops.matched

    def prime(self, ids: Tokens[int], decode: DecodeBatch) -> None:
        """Go on behind the output of an earlier run."""
        self._shown.prime(self._stops.feed(self.text.prime(ids, decode)))

    def chunk(self, id: int, text: str, logprob: TokenLogprob | None) -> EngineChunk:
        """The piece of output for one token, with as much text as may be shown."""
        self.output_tok += 1
        self._ids.append(id)
        return EngineChunk(
            n_tok=1,
            text=self._shown.feed(self._stops.feed(text)),
            token_ids=[id],
            logprobs=None if logprob is None else [logprob],
        )

    def rest(self, decode: DecodeBatch) -> str:
        """Text that was held back, once the output has ended of itself."""
        tail = self.text.take(*decode(self.text.windows()), last=True)
        return self._shown.feed(self._stops.feed(tail) + self._stops.flush())

    def ended(self, finish: str | None) -> Ended:
        """The end as the daemon is told it; `finish` None only where a stop string is complete."""
        usage = Usage(prompt_tok=self.prompt_tok, output_tok=self.output_tok)
        if self.stopped:
            return Ended(id=self.id, usage=usage, finish_reason=FinishReason.STOP)
        if (reason := _FINISHES.get(finish or "")) is not None:
            return Ended(id=self.id, usage=usage, finish_reason=reason)
        return Ended(id=self.id, usage=usage, error=f"the engine gave the request up: {finish}")
