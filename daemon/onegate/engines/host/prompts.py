"""From what a request holds to the token ids that the model reads."""

from onegate.engines.base import EngineRequest
from onegate.engines.host.chat import ChatEncoder
from onegate.engines.host.checks import plain_turns
from onegate.engines.host.engine import Refusal, too_large
from onegate.engines.host.pipeline import TextSide
from onegate.protocol.content import Message

# Counting is exact up to here; a longer text is estimated from its beginning, in bounded time.
_COUNT_EXACT_CHARS = 1 << 20


class PromptReader:
    """Turns prompts into ids, and refuses those that cannot be read before they cost time."""

    def __init__(self, side: TextSide, max_context_tok: int) -> None:
        facts = side.facts
        self._facts = facts
        self._max_context_tok = max_context_tok
        self._chat = ChatEncoder(
            facts.specials, side.encode, side.render if facts.has_template else None
        )

    def ids(self, request: EngineRequest) -> tuple[list[int], list[int]]:
        """Ids of the prompt, and of the output of an earlier run that is to be continued.

        Where the request fits its output to the context, one token of it must have room.
        Raises Refusal: `invalid` for an empty prompt or ids outside the vocabulary, `too_large`
        where prompt and output exceed the context.
        """
        resumed = request.resume_tok_ids or []
        self._check_ids(resumed, "resume_tok_ids")
        beyond_tok = len(resumed) + (1 if request.fit_max_tokens else request.max_tokens)
        if request.prompt_tok_ids is not None:
            prompt = request.prompt_tok_ids
            self._check_ids(prompt, "prompt_token_ids")
        else:
            turns = _turns(request.prompt, request.messages)
            self._check_bytes(turns, beyond_tok)
            prompt = self._encode(turns, request.raw)
        if not prompt:
            path = "prompt" if request.prompt_tok_ids is None else "prompt_token_ids"
            raise Refusal("invalid", "the prompt has no tokens", path=path)
        if len(prompt) + beyond_tok > self._max_context_tok:
            raise too_large(len(prompt) + beyond_tok, self._max_context_tok)
        return prompt, resumed

    def count(
        self, prompt: str | None, messages: list[Message] | None, *, raw: bool = False
    ) -> tuple[int, bool]:
        """Tokens of a prompt and whether that is exact; a very long one is estimated."""
        turns = _turns(prompt, messages)
        chars = sum(len(text) for _, text in turns)
        if chars > _COUNT_EXACT_CHARS:
            share = _COUNT_EXACT_CHARS / chars
            turns = [(role, text[: int(len(text) * share)]) for role, text in turns]
            return int(len(self._encode(turns, raw)) / share), False
        n_tok = len(self._encode(turns, raw))
        # At its own limit the tokenizer may have cut the text short.
        return n_tok, n_tok < self._facts.encode_max_tok

    def _encode(self, turns: list[tuple[str, str]], raw: bool) -> list[int]:
        return self._chat.encode_raw(turns[0][1]) if raw else self._chat.encode(turns)

    def _check_bytes(self, turns: list[tuple[str, str]], beyond_tok: int) -> None:
        """Spare tokenising what cannot fit by its length; the number is then a lower bound."""
        if self._facts.max_bytes_per_tok is None:
            return
        text_bytes = sum(len(text.encode()) for _, text in turns)
        at_least_tok = -(-text_bytes // self._facts.max_bytes_per_tok)
        if at_least_tok >= self._max_context_tok:
            raise too_large(at_least_tok + beyond_tok, self._max_context_tok)

    def _check_ids(self, ids: list[int], path: str) -> None:
        # The library computes with whatever lies beyond its table.
        if any(not 0 <= id < self._facts.vocabulary for id in ids):
            raise Refusal("invalid", f"token ids are 0 to {self._facts.vocabulary - 1}", path=path)


def _turns(prompt: str | None, messages: list[Message] | None) -> list[tuple[str, str]]:
    return plain_turns(messages) if messages is not None else [("user", prompt or "")]
