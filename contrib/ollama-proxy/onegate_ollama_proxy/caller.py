"""Who makes a request, and the way to the gate in his name."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from onegate import AsyncClient
from onegate.protocol.messages import OnBehalf
from onegate.protocol.status import Status
from onegate_ollama_proxy.gate import Gate
from onegate_ollama_proxy.listeners import Classes, Listener
from onegate_ollama_proxy.who import Who


@dataclass(frozen=True, slots=True)
class Caller:
    """Of one request. `behalf` is whom the gate is told of; `ask_status` asks it without naming
    anybody."""

    listener: Listener
    who: Who
    headers: Mapping[str, str]
    behalf: OnBehalf
    gate: Gate
    classes: Classes
    ask_status: Callable[[], Awaitable[Status]]

    @property
    def uid(self) -> int | None:
        """The client's user, where the kernel knows it and no key says that it is somebody else."""
        return self.behalf.uid

    @property
    def name(self) -> str:
        """Under which what he takes of the proxy is counted."""
        behalf = self.behalf
        if behalf.uid is not None:
            return f"uid:{behalf.uid}"
        return f"{behalf.source}:{behalf.principal or '-'}"

    async def client(self) -> AsyncClient:
        """The connected client that speaks for him. Raises the client library's errors."""
        return await self.gate.client(self.behalf)

    async def status(self) -> Status:
        """The gate's. Raises the client library's errors."""
        return await self.ask_status()

    def class_for(self, client: AsyncClient) -> tuple[str, tuple[str, ...]]:
        """(the class of this request, notices)."""
        allowed = list(client.welcome.limits.classes)
        return self.classes.choose(self.listener.config, allowed, self.headers)
