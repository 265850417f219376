"""How long a step of the engine takes: a + b·(prompt tokens in it) + c·(sequences that decode).

Fitted to the last steps, those with prefill and those without remembered apart: a long answer is a
thousand steps that say nothing of prefill, and must not push out what is known of it.
"""

from collections import deque
from statistics import median

from onegate.admission.estimate.least_squares import Coefficients, NormalEquations
from onegate.admission.model import StepView

# Steps that are remembered, of each of the two kinds: 512 in all.
WINDOW = 256
# Below so many steps nothing is known of decoding, of prefill.
LEAST = 16
LEAST_PREFILL = 8
# Without newer evidence nothing is known: by then the box may be throttled or shared.
AGE_NS = 600 * 10**9
# A step counts as at most so many times as long as the model has it, and at least that part. One
# stall of 30 s in a full window then moves the model as a step twice too long does, by 0.4 %;
# where it really has become slower, it follows within a window.
CLIP = 2.0
# After each step so many old ones are looked at again by the model of now: those that were clipped
# because it knew too little get back what they lost, within a window of steps.
_LOOK_BACK = 2
# The first fit cannot know which of its few steps was a stall: it clips by medians and refines.
_ROUNDS = 8
# Solving costs more than adding, and one step among many changes little.
_SOLVE_EVERY = 8
_ERRORS = 128
# Weights are the inverse squares of what is predicted: errors grow with the time. Otherwise long
# prompts, whose time is not quite linear, would decide how long a step without prefill is.
_WEIGHT = 2**100
# Bounds on what is told, so that no number breaks the sums.
_MOST_TOK = 10**7
_MOST_NS = 10**13


class _Step:
    """One step: it took `seen_ns` and counts as `y_ns`, with `weight`."""

    __slots__ = ("p", "s", "seen_ns", "weight", "y_ns")

    def __init__(self, p: int, s: int, seen_ns: int) -> None:
        self.p = p
        self.s = s
        self.seen_ns = seen_ns
        self.y_ns = self.weight = 0

    def judge(self, predicted_ns: float) -> None:
        """Clip it by what the model says; a model that says nothing of it cannot clip."""
        if predicted_ns < 1.0:
            predicted_ns = self.seen_ns
        self.y_ns = round(min(max(self.seen_ns, predicted_ns / CLIP), predicted_ns * CLIP))
        self.weight = _WEIGHT // round(predicted_ns) ** 2


class _Kind:
    """The last steps of one kind; `counted` once they are enough to be in the sums."""

    __slots__ = ("counted", "least", "newest_ns", "next", "steps")

    def __init__(self, least: int) -> None:
        self.least = least
        self.steps: deque[_Step] = deque()
        self.counted = False
        self.next = 0
        self.newest_ns = 0


class StepModel:
    """The model of one pool. All times in nanoseconds."""

    def __init__(self) -> None:
        self._sums = NormalEquations()
        self._decode = _Kind(LEAST)
        self._prefill = _Kind(LEAST_PREFILL)
        self._fit: Coefficients = (0.0, 0.0, 0.0)
        self._unsolved = 0
        self._largest_tok = 0
        self._errors: deque[float] = deque(maxlen=_ERRORS)

    @property
    def error(self) -> float | None:
        """Median of |predicted - seen| / seen of the last steps, each predicted before it came."""
        return median(self._errors) if len(self._errors) >= LEAST else None

    def add(self, step_ns: int, *, prefill_tok: int, decode_seqs: int, now_ns: int) -> None:
        """A step has ended. One of no time at all is not a step, and is not counted."""
        if step_ns <= 0:
            return
        step = _Step(
            min(max(prefill_tok, 0), _MOST_TOK),
            min(max(decode_seqs, 0), _MOST_TOK),
            min(step_ns, _MOST_NS),
        )
        kind = self._prefill if step.p else self._decode
        if kind.counted:
            predicted = self._predict(step.p, step.s)
            self._errors.append(abs(predicted - step.seen_ns) / step.seen_ns)
            step.judge(predicted)
            self._count(step)
        kind.newest_ns = now_ns
        kind.steps.append(step)
        if len(kind.steps) > WINDOW:
            self._discount(kind.steps.popleft())
        if kind.counted:
            self._look_back(kind)
            self._unsolved += 1
            if self._unsolved >= _SOLVE_EVERY:
                self._solve()
        elif len(kind.steps) >= kind.least:
            self._begin(kind)

    def step_ns(self, *, prefill_tok: int, decode_seqs: int, now_ns: int) -> float | None:
        """The time of such a step; None while too little is known or nothing new has come."""
        if not self._knows(prefill_tok, now_ns):
            return None
        return self._predict(prefill_tok, decode_seqs)

    def prefill_ns(self, tok: int, decode_seqs: int, now_ns: int) -> float | None:
        """The time to compute a prompt of `tok` while so many sequences decode beside it.

        In as many steps as it takes if none computes more than the largest that was seen.
        """
        if not self._knows(tok, now_ns):
            return None
        if tok <= 0:
            return 0.0
        steps = -(-tok // self._largest_tok)
        return steps * self._predict(0, decode_seqs) + self._fit[1] * tok

    def view(self, now_ns: int) -> StepView | None:
        """The model as status shows it; None while too little is known or nothing new has come."""
        if not self._knows(0, now_ns):
            return None
        a, b, c = self._fit
        return StepView(
            step_ns=a,
            prefill_ns=b if self._knows(1, now_ns) else None,
            decode_ns=c,
            error=self.error,
            steps=len(self._decode.steps) + len(self._prefill.steps),
            age_ns=now_ns - max(self._decode.newest_ns, self._prefill.newest_ns),
        )

    def _knows(self, prefill_tok: int, now_ns: int) -> bool:
        if prefill_tok > 0:
            return self._prefill.counted and now_ns - self._prefill.newest_ns <= AGE_NS
        newest_ns = max(self._decode.newest_ns, self._prefill.newest_ns)
        return self._decode.counted and now_ns - newest_ns <= AGE_NS

    def _predict(self, p: int, s: int) -> float:
        a, b, c = self._fit
        return a + b * p + c * s

    def _solve(self) -> None:
        self._fit = self._sums.solve()
        self._largest_tok = max((step.p for step in self._prefill.steps), default=0)
        self._unsolved = 0

    def _begin(self, kind: _Kind) -> None:
        """There are now enough steps of this kind: count them, clipped by what most of them say."""
        kind.counted = True
        if kind is self._decode:
            a_ns, slope = median(step.seen_ns for step in kind.steps), 0.0
        else:
            a_ns = self._fit[0]
            slope = median((step.seen_ns - a_ns) / step.p for step in kind.steps)
        for step in kind.steps:
            step.judge(a_ns + slope * step.p)
            self._count(step)
        for _ in range(_ROUNDS):
            self._solve()
            for step in kind.steps:
                self._judge_again(step)
        self._solve()

    def _look_back(self, kind: _Kind) -> None:
        for _ in range(_LOOK_BACK):
            kind.next = (kind.next + 1) % len(kind.steps)
            self._judge_again(kind.steps[kind.next])

    def _judge_again(self, step: _Step) -> None:
        self._discount(step)
        step.judge(self._predict(step.p, step.s))
        self._count(step)

    def _count(self, step: _Step) -> None:
        self._sums.add(step.p, step.s, step.y_ns, step.weight)

    def _discount(self, step: _Step) -> None:
        self._sums.add(step.p, step.s, step.y_ns, -step.weight)
