"""A lease, from the question to the settlement, the same for both clients.

A delegate holds a permit and a seat while it works on the engine itself.
"""

from msgspec import structs

from onegate.client.core import Core, Link, cancel_now, deadline_in
from onegate.client.errors import OnegateError, Unavailable, error_of
from onegate.client.request import convert, ms_of
from onegate.protocol import messages as m
from onegate.protocol.content import Usage


class Holding:
    """One lease. Nothing is sent before `begin`; after `settle` or `abandon` it is over."""

    def __init__(
        self,
        core: Core,
        prompt_tok: int,
        max_tok: int,
        *,
        model: str | None,
        class_: str | None,
        ttft_timeout: float | None,
    ) -> None:
        fields = {
            "id": 0,
            "prompt_tok": prompt_tok,
            "max_tok": max_tok,
            "model": model,
            "class": class_,
            "ttft_timeout_ms": ms_of(ttft_timeout, "ttft_timeout"),
        }
        self._core = core
        self._message = convert(
            {name: value for name, value in fields.items() if value is not None}, m.Lease
        )
        self._link: Link | None = None
        self._id = 0
        self._open = False
        self.started: m.Started | None = None

    async def begin(self) -> m.Started:
        """Wait for the permit. Raises Rejected and what is below it, Unavailable."""
        link = self._link = await self._core.link()
        self._id = link.session.begin()
        try:
            data = link.session.encode(structs.replace(self._message, id=self._id))
            self._open = True
            await link.send(data, None)
            while True:
                answer = await link.receive(self._id, None)
                if isinstance(answer, m.Started):
                    self.started = answer
                    return answer
                self._look_for_failure(answer)
        except BaseException:
            self.abandon()
            raise

    async def ended(self) -> OnegateError:
        """Why the lease was taken back, once it is: the work under it has to stop then."""
        assert self._link is not None
        while True:
            try:
                self._look_for_failure(await self._link.receive(self._id, None))
            except OnegateError as error:
                self.abandon()
                return error

    async def settle(self, usage: Usage | None) -> None:
        """The work is over and used this much; None: what was reserved. Does nothing when the lease
        is over.

        Raises Failed where it had been taken back before.
        """
        if not self._open:
            return
        assert self._link is not None
        answer_s = self._core.options.answer_timeout
        deadline_ns = deadline_in(answer_s)
        try:
            data = self._link.session.encode(m.Settle(id=self._id, usage=usage))
            await self._link.send(data, deadline_ns)
            while True:
                answer = await self._link.receive(self._id, deadline_ns)
                if isinstance(answer, m.Ack) and answer.verb == "settle":
                    self._open = False
                    return
                self._look_for_failure(answer)
        except TimeoutError:
            raise Unavailable(f"the daemon did not answer within {answer_s} s") from None
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Give the lease back without a word on what was used. Safe to call twice."""
        if self._link is None:
            return
        link, self._link = self._link, None
        link.session.finish(self._id)
        if self._open:
            self._open = False
            cancel_now(link, self._id)
        self._core.settle(link)

    def _look_for_failure(self, answer: m.DaemonMessage) -> None:
        if isinstance(answer, m.Failed):
            self._open = False
            raise error_of(answer, started=self.started is not None)
