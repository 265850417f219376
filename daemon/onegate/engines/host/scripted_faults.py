"""Faults of the scripted engine: what goes wrong in engines, on demand."""

import ctypes
import os
import threading
from collections.abc import Callable

import msgspec

from onegate.engines.base import EngineChunk
from onegate.engines.host.engine import StepReport
from onegate.engines.host.scripted_sequence import ScriptedSequence
from onegate.engines.host.wire import Output, Step
from onegate.protocol.framing import frame

# No request has such a number: the daemon counts up from 1.
_NOBODY = 2**62
_EXIT_DIED = 1


class Faults:
    """Carries out the directives that break the host itself; `hang_up` closes the connection."""

    def __init__(self, hang_up: Callable[[], None]) -> None:
        self._hang_up = hang_up

    def before_step(self, sequence: ScriptedSequence, report: StepReport) -> None:
        """Look whether this sequence has said as many tokens as one of its faults waits for."""
        script, said_tok = sequence.script, sequence.output_tok
        if script.number("die") == said_tok or "die-before-first" in script.flags:
            os._exit(_EXIT_DIED)
        if script.number("hang") == said_tok:
            _for_ever()
        if script.number("freeze") == said_tok:
            _for_ever_with_the_gil()
        if script.number("close") == said_tok:
            self._hang_up()
            _for_ever()
        if script.number("wrong-id") == said_tok:
            report.outputs.append(Output(id=_NOBODY, chunk=EngineChunk(n_tok=1, text="?")))
        report.raw += _broken_bytes(sequence)


def _broken_bytes(sequence: ScriptedSequence) -> bytes:
    script, said_tok = sequence.script, sequence.output_tok
    if script.number("garbage") == said_tok:
        return frame(b"\xc1 not msgpack")
    if script.number("half-utf8") == said_tok:
        chunk = EngineChunk(n_tok=1, text="half:")
        step = msgspec.msgpack.encode(Step(n=0, outputs=[Output(id=sequence.id, chunk=chunk)]))
        return frame(step.replace(b"half:", b"ha\xf0\x9f\xa6"))
    if script.number("huge-frame") == said_tok:
        return b"\xff\xff\xff\xff"
    return b""


def _for_ever_with_the_gil() -> None:
    """As native code does that wedges without letting go of the interpreter."""
    while True:
        ctypes.PyDLL(None).pause()


def _for_ever() -> None:
    while True:
        threading.Event().wait()
