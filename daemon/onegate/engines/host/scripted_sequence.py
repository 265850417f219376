"""One request of the scripted engine: which words it says, and when it ends."""

import zlib

from msgspec import UNSET

from onegate.engines.base import EngineChunk, EngineRequest
from onegate.engines.host.directives import Script
from onegate.engines.host.stops import ShownText, StopScanner
from onegate.engines.host.wire import Ended
from onegate.protocol.content import FinishReason, Usage

WORDS = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work government "
    "number night point home water room mother area money story fact month lot right study book "
    "eye job word business issue side kind head house service friend father power hour game line"
).split()
DEFAULT_WORDS_TOK = 64
# Ids of what `say` spells out begin behind those of the words.
_SAID = len(WORDS)
_ERROR_AFTER_TOK = 2


class ScriptedSequence:
    """Word number k of an answer depends on the prompt and k alone, so a run that is resumed after
    n tokens says exactly what the first one would have said."""

    def __init__(
        self,
        request: EngineRequest,
        script: Script,
        prompt: bytes,
        *,
        prompt_tok: int,
        room_tok: int,
    ) -> None:
        self.id = request.id
        self.script = script
        self.prompt_tok = prompt_tok
        self.max_tok = min(request.max_tokens, room_tok)
        self.output_tok = 0
        self.kv_tok = 0
        self.admitted = False
        self.leaving = False
        self.hold_ns: int | None = None
        self._resumed_tok = len(request.resume_tok_ids or ())
        cached_tok = script.number("cached")
        if cached_tok is not None:
            cached_tok = min(cached_tok, prompt_tok + self._resumed_tok - 1)
        self.cached_tok = cached_tok
        self.prefilled_tok = cached_tok or 0
        self._seed = zlib.crc32(prompt)
        self._say = script.texts["say"].split("|") if "say" in script.texts else None
        params = request.params
        self._min_tok = 0 if params.min_tokens is UNSET else params.min_tokens
        self._ignores_end = params.ignore_eos is True
        self._stops = StopScanner(() if params.stop is UNSET else params.stop)
        self._shown = ShownText(request.resume_shown_chars)
        earlier = "".join(self._word(k) for k in range(self._resumed_tok))
        self._shown.prime(self._stops.feed(earlier))

    @property
    def computed_tok(self) -> int:
        """Tokens that have to be in the cache before the next one can be said."""
        return self.prompt_tok + self._resumed_tok + self.output_tok

    @property
    def decodes(self) -> bool:
        """Whether everything before the next token is computed."""
        return self.admitted and self.prefilled_tok >= self.computed_tok

    def evict(self) -> None:
        """The cache is needed elsewhere: everything is to be computed again."""
        self.admitted = False
        self.kv_tok = self.prefilled_tok = 0

    def say(self) -> tuple[EngineChunk, Ended | None]:
        """The next token, and the end if it was the last."""
        position = self._resumed_tok + self.output_tok
        text = self._stops.feed(self._word(position))
        self.output_tok += 1
        self.prefilled_tok += 1
        ended = self._end()
        if ended is not None and not self._stops.matched:
            text += self._stops.flush()
        chunk = EngineChunk(n_tok=1, text=self._shown.feed(text), token_ids=[self._id(position)])
        return chunk, ended

    def _end(self) -> Ended | None:
        usage = Usage(prompt_tok=self.prompt_tok, output_tok=self.output_tok)
        error = self.script.texts.get("error")
        if error is not None and self.output_tok >= _ERROR_AFTER_TOK:
            return Ended(id=self.id, usage=usage, error=error or "scripted")
        position = self._resumed_tok + self.output_tok
        has_said_all = position >= self._natural_tok() and self.output_tok >= self._min_tok
        if self._stops.matched or (has_said_all and not self._ignores_end):
            return Ended(id=self.id, usage=usage, finish_reason=FinishReason.STOP)
        if self.output_tok >= self.max_tok:
            return Ended(id=self.id, usage=usage, finish_reason=FinishReason.LENGTH)
        return None

    def _natural_tok(self) -> int:
        if self._say is not None:
            return len(self._say)
        asked = self.script.number("tokens")
        return DEFAULT_WORDS_TOK if asked is None else asked

    def _id(self, position: int) -> int:
        if self._say is not None and position < len(self._say):
            return _SAID + position
        return (self._seed + position * 7919) % len(WORDS)

    def _word(self, position: int) -> str:
        if self._say is not None and position < len(self._say):
            return self._say[position]
        return f"{WORDS[self._id(position)]} "
