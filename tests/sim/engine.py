"""An engine in virtual time: steps that cost what a linear model says, and a word after each.

It is given what `engines.base.EngineRequest` carries, and nothing else. How long an answer will be
is known to its script alone, by the text of the prompt; the core never sees the script.

A step computes one token for each sequence whose prompt is done and, up to `chunk_tok` in all,
prompt tokens of the others, in order of rank (an engine with priorities) or of arrival. It costs

    step_ns + seq_ns · sequences in it + prompt_tok_ns · prompt tokens
    + attend_ns · prompt tokens · tokens before each
    + read_ns · tokens before those that the others make
    + many_ns, if it computes more than one token
    + mixed_ns, if it computes prompts, and others make a token
    + change_ns, if it computes another number of tokens than the step before
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from onegate.admission.model import PoolCapacity, Reservation


@dataclass(frozen=True, slots=True)
class Machine:
    """What an engine is and costs. Times in nanoseconds.

    `cache_tok` tokens of finished and stopped sequences are found again by the next one with the
    same beginning (0: none are); `tells_prefill` says whether progress of prompts is told. With
    `own_prefill` each seat computes its prompt by itself, and the steps of the others take no
    longer for it.
    """

    capacity: PoolCapacity
    step_ns: float = 10e6
    seq_ns: float = 0.3e6
    prompt_tok_ns: float = 50e3
    attend_ns: float = 0.0
    read_ns: float = 0.0
    many_ns: float = 0.0
    mixed_ns: float = 0.0
    change_ns: float = 0.0
    chunk_tok: int | None = None
    by_rank: bool = True
    cache_tok: int = 0
    tells_prefill: bool = True
    own_prefill: bool = False

    def with_cache(self, cache_tok: int) -> "Machine":
        """The same with a prefix cache of that size."""
        return replace(self, cache_tok=cache_tok)

    @property
    def step_tok(self) -> int:
        """Prompt tokens of one step at the most."""
        return self.chunk_tok or self.capacity.max_step_tok or 2048

    def cost_ns(
        self,
        prompt_tok: int,
        seqs: int,
        attended: float = 0.0,
        read_tok: int = 0,
        *,
        changed: bool = False,
    ) -> int:
        """What a step costs; `attended` is the sum of what is before each prompt token, `read_tok`
        of what is before those that are made; `changed`: the step before was another."""
        return round(
            self.step_ns
            + self.seq_ns * seqs
            + self.prompt_tok_ns * prompt_tok
            + self.attend_ns * attended
            + self.read_ns * read_tok
            + self.many_ns * (max(seqs, prompt_tok) > 1)
            + self.mixed_ns * (prompt_tok > 0 and read_tok > 0)
            + self.change_ns * changed
        )


@dataclass(frozen=True, slots=True)
class Work:
    """The part of an `EngineRequest` that an engine's time depends on.

    `prompt` stands for the text: equal texts have equal numbers. `max_tok` counts new tokens;
    `resume_tok` output tokens of an earlier run come after the prompt.
    """

    id: int
    prompt: int
    prompt_tok: int
    max_tok: int
    resume_tok: int
    rank: int
    cache_salt: str


class Listener(Protocol):
    """Who is told, after each step."""

    def prefilled(self, id: int, computed_tok: int, tok: int) -> None:
        """`tok` more prompt and resumed tokens are computed, `computed_tok` in all; not the last
        of them, whose word is `produced`."""

    def produced(self, id: int, made_tok: int, tok: int) -> None:
        """There are `made_tok` new tokens, one more; `tok` prompt tokens were computed for it."""

    def finished(self, id: int) -> None:
        """The answer is complete; the seat is free."""

    def left(self, id: int) -> None:
        """Nothing of it runs any more: it was stopped or aborted."""


@dataclass(slots=True)
class _Sequence:
    work: Work
    answer_tok: int  # new tokens until it ends of itself or is cut
    left_tok: int  # prompt, and what it resumes, still to be computed
    made_tok: int = 0
    leaves: bool = False
    out: bool = False  # of the cache, by the engine's own choice

    @property
    def cache_tok(self) -> int:
        work = self.work
        return work.prompt_tok + work.resume_tok + self.made_tok - self.left_tok


class Engine:
    """One pool. `script(prompt)` is the length of the whole answer to a prompt, in tokens."""

    def __init__(self, machine: Machine, script: Callable[[int], int], listener: Listener) -> None:
        self.machine = machine
        self.running: dict[int, _Sequence] = {}
        self.evictions = 0
        self._script = script
        self._listener = listener
        self._plan: list[tuple[_Sequence, int]] = []
        self._prompts: list[_Sequence] = []
        self._leaving = False
        self._step_tok = 0
        self._kept: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._kept_tok = 0

    def take(self, work: Work) -> int:
        """Begin with the next step. Returns how many tokens the prefix cache has of it."""
        capacity = self.machine.capacity
        answer_tok = max(1, min(work.max_tok, self._script(work.prompt) - work.resume_tok))
        all_tok = work.prompt_tok + work.resume_tok
        # The last token is always computed: the first new one comes of it.
        cached_tok = min(self._kept.get((work.cache_salt, work.prompt), 0), all_tok - 1)
        cached_tok -= cached_tok % capacity.block_tok
        sequence = _Sequence(work, answer_tok, all_tok - cached_tok)
        self.running[work.id] = sequence
        assert len(self.running) <= capacity.max_seqs, "more than there are seats"
        if capacity.kv_tok is not None and capacity.reservation is Reservation.FULL:
            reserved = (
                s.work.prompt_tok + s.work.resume_tok + s.work.max_tok
                for s in self.running.values()
            )
            assert sum(reserved) <= capacity.kv_tok, "more than the cache holds"
        self._prompts.append(sequence)
        if self.machine.by_rank:
            self._prompts.sort(key=lambda s: (s.work.rank, s.work.id))
        return cached_tok

    def stop(self, id: int) -> None:
        """Let it leave at the end of the step that runs, with what it has made by then."""
        if (sequence := self.running.get(id)) is not None:
            sequence.leaves = self._leaving = True

    def begin(self) -> int | None:
        """Begin a step; returns its cost in nanoseconds, or None when there is nothing to do."""
        if not self.running:
            return None
        capacity = self.machine.capacity
        if capacity.reservation is Reservation.GROW and capacity.kv_tok is not None:
            self._make_room(capacity.kv_tok)
        if self.machine.own_prefill:
            return self._begin_apart()
        budget = self.machine.step_tok - (len(self.running) - len(self._prompts))
        prompts: dict[int, int] = {}
        attended = 0.0
        for sequence in self._prompts:
            if budget <= 0:
                break
            if not sequence.out:
                prompts[sequence.work.id] = tok = min(budget, sequence.left_tok)
                budget -= tok
                attended += tok * (sequence.cache_tok + tok / 2)
        self._plan = [
            (s, prompts.get(id, 0))
            for id, s in self.running.items()
            if id in prompts or not s.left_tok
        ]
        read_tok = sum(s.cache_tok for s, _ in self._plan if not s.left_tok)
        prompt_tok = sum(prompts.values())
        before_tok, self._step_tok = self._step_tok, prompt_tok + len(self._plan) - len(prompts)
        return self.machine.cost_ns(
            prompt_tok, len(self._plan), attended, read_tok, changed=self._step_tok != before_tok
        )

    def _begin_apart(self) -> int:
        """Each prompt goes forward by what its seat computes while the others make a token."""
        machine = self.machine
        cost_ns = machine.cost_ns(0, len(self.running) - len(self._prompts), 0.0)
        filled_tok = max(1, round(cost_ns / machine.prompt_tok_ns))
        self._plan = [(s, min(filled_tok, s.left_tok)) for s in self.running.values()]
        return cost_ns

    def end(self) -> None:
        """The step is over: everybody is told."""
        listener, finished = self._listener, []
        for sequence, tok in self._plan:
            if sequence.left_tok:
                sequence.left_tok -= tok
                if sequence.left_tok:
                    listener.prefilled(sequence.work.id, sequence.cache_tok, tok)
                    continue
                self._prompts.remove(sequence)
            sequence.made_tok += 1
            if sequence.made_tok >= sequence.answer_tok:
                finished.append(sequence)
            listener.produced(sequence.work.id, sequence.made_tok, tok)
        for sequence in finished:
            self._remove(sequence)
            listener.finished(sequence.work.id)
        while self._leaving:
            # Whoever is told may stop others.
            self._leaving = False
            for sequence in [s for s in self.running.values() if s.leaves]:
                self._remove(sequence)
                listener.left(sequence.work.id)

    def _remove(self, sequence: _Sequence) -> None:
        del self.running[sequence.work.id]
        if sequence in self._prompts:
            self._prompts.remove(sequence)
        if self.machine.cache_tok:
            key = (sequence.work.cache_salt, sequence.work.prompt)
            self._kept_tok += sequence.cache_tok - self._kept.pop(key, 0)
            self._kept[key] = sequence.cache_tok
            while self._kept_tok > self.machine.cache_tok:
                self._kept_tok -= self._kept.popitem(last=False)[1]

    def _make_room(self, kv_tok: int) -> None:
        """Where less is reserved than is needed, the engine drops the newest, and begins it anew
        when there is room: what the core is there to prevent."""
        used_tok = sum(s.cache_tok + 1 for s in self.running.values() if not s.out)
        inside = [s for s in self.running.values() if not s.out]
        while used_tok > kv_tok and len(inside) > 1:
            victim = inside.pop()
            used_tok -= victim.cache_tok + 1
            if not victim.left_tok:
                self._prompts.append(victim)
            victim.left_tok = victim.work.prompt_tok + victim.work.resume_tok + victim.made_tok
            victim.out = True
            self.evictions += 1
        for sequence in self.running.values():
            if sequence.out and used_tok + sequence.left_tok < kv_tok:
                sequence.out = False
                used_tok += sequence.left_tok
