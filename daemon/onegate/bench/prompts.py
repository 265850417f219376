"""Texts of an exact number of tokens, each unlike the others from its first word on."""

from collections.abc import Awaitable, Callable
from random import Random

from msgspec import Struct

Count = Callable[[str], Awaitable[int]]

# English words that byte-pair vocabularies hold whole, with the space before them.
_COMMON = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work government "
    "number night point home water room mother area money story fact month lot right study book "
    "eye job word business issue side kind head house service friend father power hour game line "
    "end member law car city community name president team minute idea body information back "
    "parent face others level office door health person art war history party result change "
    "morning reason research girl guy moment air teacher force education foot boy age policy music"
).split()
# Three letters and a space: four bytes, which is one token where tokens are counted by bytes.
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_TRIPLES = [a + b + c for a in _LETTERS for b in _LETTERS for c in _LETTERS]

ALPHABETS = {"words": _COMMON, "bytes": _TRIPLES}
# Lengths at which an alphabet is tried, twice each with other words.
_PROBES = (3, 17, 64)


class PromptTooShort(Exception):
    """A prompt of so few tokens cannot be: what the target adds to every prompt is more."""


class Rule(Struct, frozen=True):
    """How a target counts: `overhead_tok` for its chat template, then one for each word.

    Not `exact` where no alphabet counts evenly there; lengths are then near misses.
    """

    alphabet: str
    overhead_tok: int
    exact: bool


async def learn(count: Count) -> Rule:
    """Find the alphabet of which each word is one token, by asking the target to count."""
    nearest: tuple[int, Rule] | None = None
    for alphabet in ALPHABETS:
        extra = []
        for n_tok in _PROBES:
            for turn in ("a", "b"):
                text = _text(alphabet, n_tok, Random(f"probe/{n_tok}/{turn}"))
                extra.append(await count(text) - n_tok)
        spread = max(extra) - min(extra)
        rule = Rule(
            alphabet=alphabet, overhead_tok=sorted(extra)[len(extra) // 2], exact=not spread
        )
        if rule.exact:
            return rule
        if nearest is None or spread < nearest[0]:
            nearest = (spread, rule)
    assert nearest is not None
    return nearest[1]


def prompt(rule: Rule, n_tok: int, key: str, *, shared_tok: int = 0, shared_key: str = "") -> str:
    """A text that makes a prompt of `n_tok`, the same for the same key.

    The first `shared_tok` words are those of `shared_key`. Raises PromptTooShort.
    """
    words = n_tok - rule.overhead_tok
    if words < 1:
        raise PromptTooShort(
            f"a prompt of {n_tok} tokens cannot be: the target adds {rule.overhead_tok} to each"
        )
    shared = min(shared_tok, words - 1)
    head = _text(rule.alphabet, shared, Random(f"shared/{shared_key}")) if shared else ""
    tail = _text(rule.alphabet, words - shared, Random(key))
    return f"{head} {tail}" if head else tail


def _text(alphabet: str, n_words: int, rng: Random) -> str:
    return " ".join(rng.choices(ALPHABETS[alphabet], k=n_words))
