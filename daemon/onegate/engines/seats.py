"""Who is inside the engine: every request from its `Submit` to the word that its seat is free."""

from collections.abc import Callable

from onegate.clock import monotonic_ns
from onegate.engines.base import (
    Accepted,
    EngineBroke,
    EngineError,
    EngineEvent,
    EngineMalformed,
    EngineRefused,
    EngineTooLarge,
    EngineUnavailable,
    Finished,
    Progress,
    SeatFreed,
    Stopped,
)
from onegate.engines.host.wire import AcceptedMsg, Ended, Output, Prefilled, RefusedMsg, Step
from onegate.engines.stall import StallRule
from onegate.engines.stream import Stream


class _Seat:
    """A request inside; `asked_to_go` once an abort was sent, `ended` once its end was told."""

    __slots__ = ("accepted", "asked_to_go", "ended", "model", "stream")

    def __init__(self, stream: Stream, model: str) -> None:
        self.model = model
        self.stream = stream
        self.accepted = False
        self.asked_to_go = False
        self.ended = False


class Seats:
    """Follows what the host says of each request. Raises EngineMalformed where that makes no sense.

    Seats outlive their streams: an abandoned one is held until the host confirms.
    """

    def __init__(self, sink: Callable[[EngineEvent], None], rule: StallRule) -> None:
        self._sink = sink
        self._rule = rule
        self._seats: dict[int, _Seat] = {}

    def __contains__(self, id: int) -> bool:
        return id in self._seats

    def __len__(self) -> int:
        return len(self._seats)

    def of(self, model: str) -> list[int]:
        """Who is inside one pool."""
        return [id for id, seat in self._seats.items() if seat.model == model]

    def enter(self, stream: Stream, model: str) -> None:
        """A request is on its way in."""
        self._seats[stream.id] = _Seat(stream, model)
        self._rule.entered(stream.id, monotonic_ns())

    def ask_to_go(self, id: int) -> bool:
        """Whether an abort is to be sent now: the first time, and while the request runs."""
        seat = self._seats.get(id)
        if seat is None or seat.asked_to_go or seat.ended:
            return False
        seat.asked_to_go = True
        return True

    def lose(self, error: EngineBroke, tell: Callable[[list[int]], None]) -> None:
        """The engine is gone with everything inside: first `tell` is called, then readers hear."""
        lost, self._seats = self._seats, {}
        for id in lost:
            self._rule.left(id)
        tell(list(lost))
        for seat in lost.values():
            # One instance each: an exception collects the frames it passes through.
            seat.stream.end(type(error)(str(error)))

    # --- what the host says -----------------------------------------------------------------

    def accepted(self, message: AcceptedMsg) -> None:
        """The host took it."""
        seat = self._seat(message.id, accepted=False)
        seat.accepted = True
        self._rule.accepted(message.id, message.prompt_tok or 0, monotonic_ns())
        seat.stream.push(Accepted(prompt_tok=message.prompt_tok, cached_tok=message.cached_tok))

    def refused(self, message: RefusedMsg) -> None:
        """The host did not take it, and it holds nothing there."""
        seat = self._seat(message.id, accepted=False)
        self._free(message.id)
        seat.stream.end(_refusal(message))

    def step(self, message: Step) -> None:
        """One step of the engine: output, ends, and then the seats that are free."""
        for done in message.prefilled:
            self._prefilled(done)
        for output in message.outputs:
            self._output(output)
        for ended in message.ended:
            self._ended(ended)
        for id in message.freed:
            self._freed(id)

    def _prefilled(self, message: Prefilled) -> None:
        seat = self._seat(message.id, accepted=True)
        seat.stream.push(Progress(prefilled_tok=message.prefilled_tok))

    def _output(self, message: Output) -> None:
        seat = self._seat(message.id, accepted=True)
        self._rule.first_token(message.id, monotonic_ns())
        seat.stream.push(message.chunk)

    def _ended(self, message: Ended) -> None:
        seat = self._seat(message.id, accepted=True)
        seat.ended = True
        if message.error is not None:
            seat.stream.end(EngineBroke(message.error))
        elif message.finish_reason is not None:
            seat.stream.push(
                Finished(
                    finish_reason=message.finish_reason,
                    usage=message.usage,
                    cached_tok=message.cached_tok,
                )
            )
            seat.stream.end()
        else:
            raise EngineMalformed("the engine ended a request without saying how")

    def _freed(self, id: int) -> None:
        seat = self._seats.get(id)
        if seat is None or not seat.accepted:
            raise EngineMalformed("the engine freed a seat that nobody holds")
        if not seat.ended and not seat.asked_to_go:
            raise EngineMalformed("the engine freed a seat whose request has not ended")
        self._free(id)
        seat.stream.push(Stopped())
        seat.stream.end()

    def _free(self, id: int) -> None:
        del self._seats[id]
        self._rule.left(id)
        self._sink(SeatFreed(id=id))

    def _seat(self, id: int, *, accepted: bool) -> _Seat:
        seat = self._seats.get(id)
        if seat is None or seat.accepted is not accepted or seat.ended:
            raise EngineMalformed("the engine speaks of a request that is not there")
        return seat


def _refusal(message: RefusedMsg) -> EngineError:
    if (
        message.code == "too_large"
        and message.need_tok is not None
        and message.limit_tok is not None
    ):
        return EngineTooLarge(need_tok=message.need_tok, limit_tok=message.limit_tok)
    if message.code == "unavailable":
        return EngineUnavailable(message.message)
    if message.code in ("invalid", "unsupported"):
        unsupported = message.code == "unsupported"
        return EngineRefused(message.message, path=message.path, unsupported=unsupported)
    raise EngineMalformed(f"the engine refused with the unknown code {message.code[:40]!r}")
