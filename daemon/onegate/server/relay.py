"""Run a granted request on the engine, whatever the engine does meanwhile.

What an engine's death means for a request in flight: nothing seen by the client, it is queued
again at its old place; exactly resumable, it is continued; else it fails. In flight at two deaths
it is taken for the cause of them and not tried again.

One that is preempted is stopped, and continued or begun anew in the same way; if the engine
finishes it first, that holds.
"""

import math
from contextlib import aclosing

import msgspec

from onegate import clock
from onegate.admission.model import Resume
from onegate.engines.base import (
    Accepted,
    Engine,
    EngineBroke,
    EngineChunk,
    EngineMalformed,
    EngineRefused,
    EngineTooLarge,
    EngineUnavailable,
    Finished,
    Generation,
    Progress,
    Stopped,
)
from onegate.protocol.content import FinishReason, Identity, Usage
from onegate.protocol.errors import NoticeCode, Phase, Reason
from onegate.protocol.messages import Notice, Paused, Resumed, Started
from onegate.server.account import Accounts
from onegate.server.answer import Answer
from onegate.server.checks import check_boundary, check_whole_prompt, refuse, too_large
from onegate.server.gate import Permit
from onegate.server.live import LiveRequest
from onegate.server.outcome import SLOW_READER, Ending, Outcome, RequestEnded
from onegate.server.prepare import Plan
from onegate.server.sizes import PromptSizes

MAX_DEATHS = 2
MAX_REQUEUES = 2


class Relay:
    """One granted request on its way through the engine."""

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        live: LiveRequest,
        answer: Answer,
        sizes: PromptSizes,
        accounts: Accounts,
    ) -> None:
        self._engine = engine
        self._plan = plan
        self._live = live
        self._answer = answer
        self._sizes = sizes
        self._accounts = accounts
        self._deaths = 0
        self._requeues = 0

    async def run(self, permit: Permit) -> None:
        """Generate until the end; raises `RequestEnded`, `NotAdmitted`, `CancelledError`."""
        live = self._live
        live.granted_ns = permit.granted_ns
        live.predicted_ns = permit.predicted_ns
        live.phase = Phase.GRANTED
        queue_ms = (permit.granted_ns - live.arrived_ns) / 1e6 if permit.granted_ns else 0.0
        live.client.send(Started(id=live.id, rid=live.rid, queue_ms=queue_ms))
        while True:
            self._answer.runs += 1
            try:
                end = None if permit.preempted else await self._once(permit)
            except EngineUnavailable as error:
                await self._again(permit, Reason.ENGINE_UNAVAILABLE, error)
            except EngineBroke as error:
                # An engine that lives still has the seat, and the request cannot have two.
                if not permit.seat_lost:
                    raise _failed(Reason.ENGINE_FAILED, error) from error
                await self._again(permit, Reason.ENGINE_FAILED, error)
            else:
                if end is None:
                    await self._make_room(permit)
                    continue
                permit.settle(finished=True)
                self._answer.finish(end, self._identity(), clock.monotonic_ns())
                return

    async def _once(self, permit: Permit) -> Finished | None:
        """One run of the engine: its end, or None when it was stopped to make room."""
        counted, kept_tok = False, self._live.output_tok
        left_tok = self._plan.request.max_tokens - kept_tok
        if left_tok < 1:  # the engine was lost between the last token and the word that it was one
            return self._all_there()
        try:
            async with aclosing(self._generation(permit, left_tok)) as items:
                async for item in items:
                    match item:
                        case EngineChunk():
                            self._take(item, permit)
                        case Accepted():
                            counted = item.prompt_tok is not None
                            self._accepted(item, permit)
                        case Progress(prefilled_tok=tok):
                            self._live.work.prefilled(tok)
                            permit.prefilled(tok)
                        case Finished():
                            self._live.work.told(item.cached_tok)
                            if not counted:
                                self._counted_at_the_end(item, permit)
                            return item
                        case Stopped() if permit.preempted:
                            return None
                        case Stopped():
                            raise EngineMalformed("the engine stopped a request unasked")
        except EngineTooLarge as error:
            raise too_large(error.need_tok, error.limit_tok) from error
        except EngineRefused as error:
            reason = Reason.UNSUPPORTED if error.unsupported else Reason.INVALID
            raise refuse(reason, str(error), path=error.path) from error
        finally:
            permit.on_preempt = None
            self._live.work.ran(self._live.output_tok - kept_tok)
        raise EngineMalformed("the engine ended a request without saying how")

    def _generation(self, permit: Permit, left_tok: int) -> Generation:
        answer = self._answer
        for pool in self._engine.pools():  # as it is now: it may have loaded, or changed, meanwhile
            if pool.model == self._plan.pool.model:
                check_boundary(pool, self._plan.asked_class)
                check_whole_prompt(pool, self._plan.asked_class, surely_fits=self._plan.surely_fits)
        seat = permit.occupy()
        request = msgspec.structs.replace(
            self._plan.request,
            id=seat,
            max_tokens=left_tok,
            resume_tok_ids=list(answer.tok_ids) or None,
            resume_shown_chars=answer.shown_chars,
        )
        try:
            generation = self._engine.generate(request)
        except BaseException:
            permit.vacate()  # the engine frees only what it has begun to iterate
            raise
        permit.on_preempt = lambda: self._stop(seat)
        return generation

    def _stop(self, seat: int) -> None:
        if self._plan.spec.resume is Resume.UNSEEN:
            # What comes until the engine has stopped must not be seen, or it could not begin anew.
            self._answer.hold()
        self._engine.stop(seat)

    async def _make_room(self, permit: Permit) -> None:
        """It was stopped for a better one: wait again, and go on from there or begin anew."""
        live = self._live
        if live.ending is not None:
            raise RequestEnded(live.ending)  # the permit may be gone with it
        self._pause()
        await permit.seat_vacant()
        self._accounts.of(live.class_).preempted += 1
        await self._wait_again(permit)

    def _pause(self) -> None:
        live = self._live
        live.phase = Phase.QUEUED
        live.client.send(Paused(id=live.id))

    async def _wait_again(self, permit: Permit) -> None:
        live = self._live
        if not self._plan.resumes_exactly:
            live.work.begins_anew(live.prompt_tok, live.output_tok)
            self._answer.restart()
        await permit.requeue(live.output_tok)
        live.phase = Phase.GRANTED
        live.client.send(Resumed(id=live.id))

    def _all_there(self) -> Finished:
        live = self._live
        usage = Usage(prompt_tok=live.prompt_tok, output_tok=live.output_tok)
        return Finished(finish_reason=FinishReason.LENGTH, usage=usage)

    def _accepted(self, item: Accepted, permit: Permit) -> None:
        plan, live = self._plan, self._live
        context_tok = plan.pool.capacity.max_context_tok
        if item.prompt_tok is not None and item.prompt_tok > context_tok:
            raise EngineMalformed(
                f"the engine says that the prompt is {item.prompt_tok} tokens, and its context "
                f"holds {context_tok}"
            )
        live.phase = Phase.PREFILL
        live.work.accepted(item.prompt_tok or live.prompt_tok, live.output_tok, item.cached_tok)
        if item.prompt_tok is not None:
            live.prompt_tok = item.prompt_tok
            permit.counted(item.prompt_tok, item.cached_tok or 0)
            self._sizes.learn(plan.pool.model, plan.n_bytes, plan.n_messages, item.prompt_tok)

    def _counted_at_the_end(self, item: Finished, permit: Permit) -> None:
        """Some engines count the prompt for the last word alone. What is charged for it is right
        then; of how many bytes make a token nothing is learned, since some of them guess."""
        context_tok = self._plan.pool.capacity.max_context_tok
        prompt_tok = min(item.usage.prompt_tok, context_tok)
        if prompt_tok > 0:
            self._live.prompt_tok = prompt_tok
            permit.counted(prompt_tok, item.cached_tok or 0)

    def _take(self, chunk: EngineChunk, permit: Permit) -> None:
        live, max_tok = self._live, self._plan.request.max_tokens
        # Every share and floor is reckoned in tokens: what an engine makes up is nobody's.
        if live.output_tok + chunk.n_tok > max_tok:
            raise EngineMalformed(
                f"the engine says that it made {live.output_tok + chunk.n_tok} tokens, and "
                f"{max_tok} is the most that was asked for"
            )
        live.phase = Phase.DECODE
        live.work.produced()
        self._answer.add(chunk, clock.monotonic_ns())
        permit.produced(live.output_tok)
        if live.client.overflowing:
            raise RequestEnded(SLOW_READER)

    def _identity(self) -> Identity:
        for pool in self._engine.pools():
            if pool.model == self._plan.pool.model and pool.identity is not None:
                return pool.identity
        return Identity(engine="unknown", model=self._plan.pool.model)

    async def _again(
        self, permit: Permit, reason: Reason, error: EngineUnavailable | EngineBroke
    ) -> None:
        answer, live, why = self._answer, self._live, str(error)
        if live.ending is not None:
            raise RequestEnded(live.ending)  # the permit may be gone with it
        self._deaths += isinstance(error, EngineBroke)
        self._requeues += 1
        if self._deaths >= MAX_DEATHS:
            raise RequestEnded(
                Ending(
                    Outcome.FAILED,
                    Reason.ENGINE_FAILED,
                    "the engine died twice with this request inside, so it is not tried again: "
                    f"{why}",
                    retryable=False,
                )
            )
        if self._requeues > MAX_REQUEUES or (answer.seen and not self._plan.resumes_exactly):
            raise _failed(reason, error)
        self._pause()
        await self._wait_again(permit)
        answer.notices.append(
            Notice(code=NoticeCode.ENGINE_RESTARTED, detail=f"the engine was restarted: {why}")
        )


def _failed(reason: Reason, error: EngineUnavailable | EngineBroke) -> RequestEnded:
    asked_ms = error.retry_after_ms if isinstance(error, EngineUnavailable) else None
    return RequestEnded(
        Ending(
            Outcome.FAILED,
            reason,
            f"the engine failed: {error}",
            # The engine's own word, where it gave one.
            retry_after_ms=None if asked_ms is None else math.ceil(asked_ms),
        )
    )
