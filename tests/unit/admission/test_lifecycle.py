"""The table of states, and the drawing of it in DESIGN.md."""

import os
from pathlib import Path

import pytest

import onegate.admission
from onegate.admission.lifecycle import TABLE, IllegalMove, Move, State, after

DESIGN = Path(onegate.admission.__file__).with_name("DESIGN.md")
ACCEPT = os.environ.get("ONEGATE_ACCEPT") == "1"
BEGIN, END = "<!-- lifecycle: begin -->\n", "<!-- lifecycle: end -->\n"


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("move", Move)
def test_a_move_is_in_the_table_or_a_bug(state: State, move: Move) -> None:
    if (state, move) in TABLE:
        assert after(state, move, 7) is TABLE[state, move]
    else:
        with pytest.raises(IllegalMove, match=f"request 7 is {state} and cannot {move}"):
            after(state, move, 7)


def test_nothing_leaves_the_end_and_everything_reaches_it() -> None:
    assert not [state for state, _ in TABLE if state is State.SETTLED]
    reached, before = {State.QUEUED}, set[State]()
    while reached != before:
        before = set(reached)
        reached |= {to for (state, _), to in TABLE.items() if state in reached}
    assert reached == set(State)


@pytest.mark.parametrize(
    ("state", "moves"),
    [
        (State.QUEUED, {Move.GRANT}),
        (State.GRANTED, {Move.START, Move.PREEMPT, Move.REQUEUE, Move.SETTLE}),
        (State.RUNNING, {Move.START, Move.PREEMPT, Move.REQUEUE, Move.SETTLE}),
        (State.PREEMPTING, {Move.START, Move.REQUEUE, Move.SETTLE}),
        (State.SETTLED, set()),
    ],
)
def test_what_can_happen_in_a_state(state: State, moves: set[Move]) -> None:
    assert {move for at, move in TABLE if at is state} == moves


def test_what_is_stopped_stays_so_until_it_is_out_of_the_engine_or_over() -> None:
    assert after(State.PREEMPTING, Move.START, 7) is State.PREEMPTING
    assert after(State.PREEMPTING, Move.REQUEUE, 7) is State.QUEUED
    assert after(State.PREEMPTING, Move.SETTLE, 7) is State.SETTLED


def diagram() -> str:
    """The table as a drawing that Markdown viewers render and people can read as it is."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> queued: arrived"]
    lines += [f"    {at} --> {to}: {move}" for (at, move), to in TABLE.items()]
    ends = sorted(set(State) - {at for at, _ in TABLE})
    lines += [f"    {state} --> [*]" for state in ends]
    lines += ["    queued --> [*]: refused, expired, withdrawn, drained", "```", ""]
    return "\n".join(lines)


def test_the_drawing_is_current() -> None:
    """`ONEGATE_ACCEPT=1 pytest tests/unit/admission` draws it anew."""
    text = DESIGN.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after_it = rest.partition(END)
    current = before + BEGIN + diagram() + END + after_it
    if ACCEPT:
        DESIGN.write_text(current, encoding="utf-8")
        return
    assert text == current, "ONEGATE_ACCEPT=1 pytest tests/unit/admission draws it anew"
