import msgspec
import pytest

from onegate.engines.host import scripted_faults
from onegate.engines.host.directives import read_script
from onegate.engines.host.engine import StepReport
from onegate.engines.host.scripted_faults import Faults
from onegate.engines.host.scripted_sequence import ScriptedSequence
from onegate.engines.host.wire import FromHost
from onegate.protocol.errors import RemoteProtocolError
from onegate.protocol.framing import FrameReader


class Ended(Exception):
    """In place of what would end or stop this process."""


@pytest.fixture
def step(make_request, monkeypatch):
    def end(*arguments):
        raise Ended(*arguments)

    monkeypatch.setattr(scripted_faults.os, "_exit", end)
    monkeypatch.setattr(scripted_faults, "_for_ever_with_the_gil", end)
    monkeypatch.setattr(scripted_faults, "_for_ever", end)
    hung_up = []

    def step(prompt, said_tok):
        sequence = ScriptedSequence(
            make_request(prompt), read_script(prompt), b"", prompt_tok=1, room_tok=100
        )
        sequence.output_tok = said_tok
        report = StepReport()
        Faults(lambda: hung_up.append(True)).before_step(sequence, report)
        return report

    step.hung_up = hung_up
    return step


def test_without_directives_nothing_happens(step):
    report = step("a question", 3)
    assert not report
    assert report.raw == b""


@pytest.mark.parametrize("prompt", ["[[die]]", "[[hang]]", "[[freeze]]", "[[close]]"])
def test_the_end_of_the_process_comes_when_it_is_due(step, prompt):
    assert not step(prompt, 2)
    with pytest.raises(Ended):
        step(prompt, 3)
    assert bool(step.hung_up) is (prompt == "[[close]]")


def test_death_before_the_first_token(step):
    with pytest.raises(Ended):
        step("[[die-before-first]]", 0)


def test_output_for_nobody(step):
    (output,) = step("[[wrong-id]]", 3).outputs
    assert output.id > 2**60


@pytest.mark.parametrize("prompt", ["[[garbage:1]]", "[[half-utf8:1]]"])
def test_frames_that_are_no_messages(step, prompt):
    (payload,) = FrameReader(10_000).feed(step(prompt, 1).raw)
    with pytest.raises(msgspec.DecodeError):
        msgspec.msgpack.decode(payload, type=FromHost)


def test_a_length_beyond_every_bound(step):
    with pytest.raises(RemoteProtocolError):
        list(FrameReader(1 << 30).feed(step("[[huge-frame:1]]", 1).raw))
