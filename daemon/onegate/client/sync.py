"""The blocking client: plain sockets, no event loop, no threads."""

import os
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from onegate.client.call import Call
from onegate.client.connect import socket_path
from onegate.client.core import Core, Options
from onegate.client.lease import Holding
from onegate.client.reply import Reply
from onegate.client.request import RequestOptions, Retry
from onegate.client.sync_link import Blocking, run
from onegate.client.verbs import OnNotice, Verbs
from onegate.protocol import messages as m
from onegate.protocol.content import Message, Tool, Usage
from onegate.protocol.status import RequestStatus, Status


class Client:
    """A blocking client of the daemon; connects at once.

    socket            path; default: ONEGATE_SOCKET, else that of a daemon you started yourself
                      ($XDG_RUNTIME_DIR/onegate.sock or ~/.cache/onegate/onegate.sock) if it is
                      there, else /run/onegate/onegate.sock
    model             the model to use; WrongModel is raised here if the daemon has no such one
    class_            the class to ask for, at or below your ceiling
    app               a name for the daemon's log and its hints
    retry             "restart": what the daemon refuses because it restarts is sent again once
                      it is back. "honour": refusals with a time are also waited for, ticket in
                      hand. "never"
    connect_timeout   seconds for connecting and the handshake; longer than a restarting daemon's
                      drain, during which who connects waits
    restart_timeout   seconds to wait for a restarting daemon to come back
    answer_timeout    seconds for the answer to anything that generates nothing
    on_behalf         delegates: the end client that everything here is asked for

    One connection, many requests: several streams may be open and read in turn. A client belongs
    to one thread at a time; give each thread its own. After a lost connection the next request
    makes a new one. A `KeyboardInterrupt` while it waits closes the connection, which cancels.

    Raises Unavailable, NotPermitted, WrongModel, InvalidRequest, ProtocolError.
    """

    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        *,
        model: str | None = None,
        class_: str | None = None,
        app: str = "",
        retry: Retry = "restart",
        connect_timeout: float = 45.0,
        restart_timeout: float = 60.0,
        answer_timeout: float = 30.0,
        on_behalf: m.OnBehalf | None = None,
    ) -> None:
        options = Options(
            path=socket_path(socket),
            app=app,
            model=model,
            class_=class_,
            retry=retry,
            connect_timeout=connect_timeout,
            restart_timeout=restart_timeout,
            answer_timeout=answer_timeout,
            on_behalf=on_behalf,
        )
        self._core = Core(Blocking(), options)
        self._verbs = Verbs(self._core)
        self.connect()

    def connect(self) -> m.Welcome:
        """Connect unless connected; returns who you are here, what you get, and why."""
        run(self._core.link())
        return self.welcome

    @property
    def welcome(self) -> m.Welcome:
        """What the daemon said at the last handshake."""
        return self._core.greeting()

    def generate(self, prompt: str | None = None, **options: Unpack[RequestOptions]) -> Reply:
        """The whole answer. Keywords are those of RequestOptions.

        Raises Rejected (or what is below it) before it started, Failed after, Unavailable.
        """
        call = Call(self._core, prompt, options, stream=False)
        return run(call.finish())

    def stream(self, prompt: str | None = None, **options: Unpack[RequestOptions]) -> "Stream":
        """The answer in pieces, as they come. Keywords and errors are those of `generate`.

        Nothing is sent before iteration begins.
        """
        return Stream(Call(self._core, prompt, options, stream=True))

    def embed(
        self,
        texts: Sequence[str],
        *,
        model: str | None = None,
        class_: str | None = None,
        timeout: float | None = None,
    ) -> m.Embeddings:
        """One vector per text. Raises Unsupported where the engine has none."""
        return run(self._verbs.embed(texts, model, class_, timeout))

    def lease(
        self,
        prompt_tok: int,
        max_tok: int,
        *,
        model: str | None = None,
        class_: str | None = None,
        ttft_timeout: float | None = None,
    ) -> "Lease":
        """Delegates: hold a permit and a seat, by `with`, for work on the engine that the daemon
        does not carry out. `ttft_timeout`: seconds to wait for it.
        """
        return Lease(
            Holding(
                self._core,
                prompt_tok,
                max_tok,
                model=model,
                class_=class_,
                ttft_timeout=ttft_timeout,
            )
        )

    def load(self, model: str, *, timeout: float | None = None) -> None:
        """Delegates: bring a model into memory, in its turn; returns once it is there.

        `timeout`: seconds to wait for that, by default without end.
        """
        run(self._verbs.load(model, timeout))

    def unload(self, model: str, *, timeout: float | None = None) -> bool:
        """Delegates: free a model's memory. Returns false where it stays, because it is used or was
        not loaded."""
        return run(self._verbs.unload(model, timeout))

    def count(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Mapping[str, Any] | Message] | None = None,
        model: str | None = None,
        tools: Sequence[Mapping[str, Any] | Tool] | None = None,
    ) -> m.Counted:
        """Tokens of a prompt, or of a conversation with its tools: `n_tok`, and whether that is
        `exact`."""
        return run(self._verbs.count(prompt, messages, model, tools))

    def capacity(
        self,
        prompt_tok: int = 0,
        max_tok: int | None = None,
        *,
        model: str | None = None,
        class_: str | None = None,
    ) -> m.CapacityReport:
        """Would such a request be taken now, and when would it start? Advice, never a promise."""
        return run(self._verbs.capacity(prompt_tok, max_tok, model, class_))

    def status(self) -> Status:
        """The daemon's state."""
        return run(self._verbs.status())

    def requests(self) -> list[RequestStatus]:
        """The live requests that you may see: your own; an administrator sees all."""
        return run(self._verbs.requests())

    def whoami(self) -> m.WhoamiReport:
        """Who the daemon takes you for, your class, and the rules that decided."""
        return run(self._verbs.whoami())

    def metrics(self) -> str:
        """The daemon's metrics in Prometheus text format."""
        return run(self._verbs.metrics())

    def pause(self, class_: str, *, until: float | None = None, on_notice: OnNotice = None) -> bool:
        """Administrators: close a class, until a Unix time, at most 30 days ahead, or until
        `unpause`.

        Returns whether that changed anything. `on_notice`, here and in the verbs that undo it and
        that release the device, is called with what does not hold all the same, such as over a
        restart of the daemon.
        """
        return run(self._verbs.pause(class_, until, on_notice))

    def unpause(self, class_: str, *, on_notice: OnNotice = None) -> bool:
        """Administrators: open a class again. Returns whether that changed anything."""
        return run(self._verbs.unpause(class_, on_notice))

    def usage(self, *, since: float | None = None) -> m.UsageReport:
        """What was used per principal, class and day (UTC), from the day of a Unix time on.

        Your own rows; an administrator gets everybody's.
        """
        return run(self._verbs.usage(since))

    def release_engine(
        self,
        *,
        until: float | None = None,
        now: bool = False,
        timeout: float | None = None,
        on_notice: OnNotice = None,
    ) -> bool:
        """Administrators: unload the models, and refuse newcomers, until a Unix time, at most 30
        days ahead, or until `take_back`. Returns once the device is free: true, or false where
        somebody took it back before that.

        What runs may end first; `now` ends it. `timeout`: seconds to wait for that, by default
        without end; the device stays released also when the waiting is given up.
        """
        return run(self._verbs.release_engine(until, now, timeout, on_notice))

    def take_back(self, *, on_notice: OnNotice = None) -> bool:
        """Administrators: end a release early. Returns whether there was one."""
        return run(self._verbs.take_back(on_notice))

    def cancel_any(self, rid: str) -> bool:
        """End a request by its daemon-wide id. Returns whether it was still there."""
        return run(self._verbs.cancel_any(rid))

    def close(self) -> None:
        """Close the connection; whatever runs on it is cancelled. Safe to call twice."""
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Stream:
    """One answer in pieces. Breaking out of the loop, or leaving the `with`, cancels.

    `reply` holds the whole answer, usage and timings included, once the loop came to its end.
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    def __iter__(self) -> Iterator[m.Chunk]:
        try:
            while (chunk := run(self._call.next_chunk())) is not None:
                yield chunk
        finally:
            self.cancel()

    @property
    def reply(self) -> Reply | None:
        return self._call.reply

    @property
    def rid(self) -> str | None:
        """The daemon-wide id, once the daemon has named it."""
        return self._call.rid

    def cancel(self) -> None:
        """End the request; does nothing when it is over. The connection stays usable."""
        self._call.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cancel()


class Lease:
    """A permit and a seat, while the `with` lasts. Leaving it by an exception gives them back as
    given up; otherwise what was reserved counts as used, unless `settle` has said what was.
    """

    def __init__(self, holding: Holding) -> None:
        self._holding = holding

    @property
    def started(self) -> m.Started | None:
        """When it was granted, and after how long."""
        return self._holding.started

    def settle(self, usage: Usage | None = None) -> None:
        """The work is over and used this much. Raises Failed where it had been taken back."""
        run(self._holding.settle(usage))

    def __enter__(self) -> Self:
        run(self._holding.begin())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            run(self._holding.settle(None))
        else:
            self._holding.abandon()
