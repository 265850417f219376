"""What the embedded engine needs of an inference library, and nothing else of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from onegate.engines.host.sampling import Sampling


class ReadTokens(NamedTuple):
    """What one sequence produced in a step; `finish` is the library's own end of it."""

    ids: list[int]
    logprobs: list[float]
    finish: str | None


class Handle(Protocol):
    """One sequence inside the library."""

    def read(self) -> ReadTokens:
        """What is new since the last call; never waits."""

    def cancel(self) -> None:
        """Give the sequence up; the next step frees what it holds."""


@dataclass(frozen=True, kw_only=True)
class TextFacts:
    """What is known of a tokenizer.

    `encode_max_tok`: the tokenizer cuts longer texts short without a word. `max_bytes_per_tok`:
    the longest token in UTF-8, None where the tokenizer shortens texts in other ways too.
    `specials` are the texts that the tokenizer reads as control tokens.
    """

    vocabulary: int
    encode_max_tok: int
    max_bytes_per_tok: int | None
    specials: tuple[str, ...]
    has_template: bool


@dataclass(frozen=True, kw_only=True)
class PipelineFacts(TextFacts):
    """What is known once a model is loaded."""

    engine_version: str
    launch: str
    samples_by_default: bool
    kv_blocks: int
    block_tok: int


class TextSide(Protocol):
    """A model's tokenizer and its chat template."""

    @property
    def facts(self) -> TextFacts: ...

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """Token ids, at most `encode_max_tok` of them."""

    def decode(self, batch: list[list[int]]) -> list[str]:
        """Text of each list of ids; control tokens and unfinished characters make none."""

    def render(self, turns: list[tuple[str, str]]) -> str:
        """The model's chat template over roles and texts, open for the answer."""


class Pipeline(TextSide, Protocol):
    """A model in memory that batches continuously. One thread; `step` may hold the GIL."""

    @property
    def facts(self) -> PipelineFacts: ...

    def bytes_of(self, ids: Sequence[int]) -> bytes:
        """What these ids stand for, halves of characters too."""

    def add(self, id: int, ids: list[int], sampling: Sampling) -> Handle:
        """Queue a sequence for the next step. Raises Refusal when the library rejects it."""

    def step(self) -> None:
        """Run one step over every sequence."""

    def cache_share(self) -> float:
        """Share of the KV blocks in use at the last step, 0 to 1."""

    def waiting(self) -> int:
        """Sequences that the last step left out."""
