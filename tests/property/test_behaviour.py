"""Treatments against a model that remembers every request of every flow."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from onegate.config import check
from onegate.server.behaviour import SLICE_NS, SLICES, Behaviour, Start

CLASSES = check(
    '[[class]]\nname = "interactive"\nbehaviour_live = 2\nbehaviour_starts_per_min = 5\n'
    '[[class]]\nname = "loop"\nbehaviour_live = 4\nbehaviour_starts_per_min = 8\n'
).classes
NAMES = [cls.name for cls in CLASSES]

steps = st.lists(
    st.tuples(
        st.integers(0, 20_000_000_000),  # ns since the one before
        st.sampled_from(["start", "start", "end", "ask"]),
        st.sampled_from(["uid:1/a", "uid:1/b", "uid:2/a"]),
        st.sampled_from(NAMES),
    ),
    max_size=80,
)


@dataclass
class Model:
    """One flow, with nothing thrown away."""

    began: list[tuple[int, int]] = field(default_factory=list)  # time, rank that was asked for
    live: list[int] = field(default_factory=list)  # ranks that were asked for
    lost: set[int] = field(default_factory=set)

    def judge(self, asked: int, now_ns: int) -> tuple[int, set[int]]:
        lost = set(self.lost)
        for rank in range(2):
            live = sum(rank_asked <= rank for rank_asked in self.live)
            oldest = now_ns // SLICE_NS - SLICES
            starts = sum(r <= rank and at // SLICE_NS > oldest for at, r in self.began)
            cls = CLASSES[rank]
            assert cls.behaviour_live is not None
            assert cls.behaviour_starts_per_min is not None
            counts = [(live, cls.behaviour_live), (starts, cls.behaviour_starts_per_min)]
            calm = all(2 * count <= most for count, most in counts)
            over = any(count >= most for count, most in counts)
            if not over and (calm or rank not in lost):
                lost.discard(rank)
                if rank >= asked:
                    return rank, lost
            elif rank >= asked:
                lost.add(rank)
        return 2, lost


@given(steps)
def test_everybody_is_treated_by_the_rule(
    taken: list[tuple[int, str, str, str]],
) -> None:
    behaviour = Behaviour(lambda: CLASSES)
    models: dict[str, Model] = {}
    open_starts: dict[str, list[tuple[Start, int]]] = {}
    now_ns = 0
    for pause_ns, step, flow, class_ in taken:
        now_ns += pause_ns
        model = models.setdefault(flow, Model())
        principal, asked = flow.partition("/")[0], NAMES.index(class_)
        rank, lost = model.judge(asked, now_ns)
        assert rank >= asked  # nobody is raised
        if step == "start":
            start = behaviour.started(principal=principal, flow=flow, asked=class_, now_ns=now_ns)
            assert start.treatment.class_ == NAMES[rank]
            assert (start.treatment.detail is None) is (rank == asked)
            model.lost = lost
            model.began.append((now_ns, asked))
            model.live.append(asked)
            open_starts.setdefault(flow, []).append((start, asked))
        elif step == "ask":
            told = behaviour.would_be(principal=principal, flow=flow, asked=class_, now_ns=now_ns)
            assert told.class_ == NAMES[rank]
        elif open_starts.get(flow):
            ended, ended_asked = open_starts[flow].pop(0)
            behaviour.ended(ended)
            model.live.remove(ended_asked)
