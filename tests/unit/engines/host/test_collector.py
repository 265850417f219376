"""What `Batch` and TensorRT-LLM's `Inside` have in common; most of it is tested there."""

import pytest

from onegate.engines.base import EngineRequest
from onegate.engines.host.collector import Collector
from onegate.engines.host.engine import StepReport
from onegate.engines.host.pipeline import ReadTokens
from onegate.engines.host.sequence import Sequence
from onegate.protocol.content import FinishReason, Params


class Handle:
    def __init__(self):
        self.next = ReadTokens([], [], None)
        self.cancels = 0

    def read(self):
        read, self.next = self.next, ReadTokens([], [], self.next.finish)
        return read

    def cancel(self):
        self.cancels += 1


@pytest.fixture
def collector():
    return Collector(lambda batch: [bytes(ids).decode("utf-8", "replace") for ids in batch])


@pytest.fixture
def enter(collector):
    def enter(id, **params):
        request = EngineRequest(id=id, model="m", max_tokens=9, prompt="x", params=Params(**params))
        handle = Handle()
        collector.add(Sequence(request, handle, prompt=[0]))
        return handle

    return enter


def test_tokens_of_all_in_turns_and_their_ends(collector, enter):
    one, two = enter(1), enter(2)
    one.next, two.next = ReadTokens([97, 98], [], None), ReadTokens([99], [], "length")
    report = StepReport()
    assert collector.collect(report) == 3
    assert [(o.id, o.chunk.text) for o in report.outputs] == [(1, "a"), (2, "c"), (1, "b")]
    assert [(e.id, e.finish_reason) for e in report.ended] == [(2, FinishReason.LENGTH)]
    assert report.freed == [2]
    assert collector.ids() == [1]


def test_an_end_by_a_stop_string_is_told_once_and_the_library_is_told_once(collector, enter):
    handle = enter(1, stop=["b"])
    handle.next = ReadTokens([97, 98, 99], [], None)
    report = StepReport()
    collector.collect(report)
    assert "".join(o.chunk.text for o in report.outputs) == "a"
    assert len(report.ended) == 1
    again = StepReport()
    collector.collect(again)
    assert (again.ended, handle.cancels, collector.ids()) == ([], 1, [1])
    handle.next = ReadTokens([], [], "stop")
    last = StepReport()
    collector.collect(last)
    assert (last.ended, last.freed) == ([], [1])


def test_an_abort_is_passed_on_once(collector, enter):
    handle = enter(1)
    collector.abort(1)
    collector.abort(1)
    collector.abort(2)
    assert handle.cancels == 1
