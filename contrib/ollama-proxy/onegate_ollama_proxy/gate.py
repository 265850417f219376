"""One end client's connection to the gate.

It is made with the first request that needs it, and closed with the client's own connection, which
the gate takes for a cancellation of whatever still runs. A program that speaks for several people
over one connection gets another one whenever the next request is for somebody else.
"""

from onegate import AsyncClient
from onegate.protocol.messages import OnBehalf

APP = "onegate-ollama-proxy"
# A client that waits for a daemon that is being started anew waits with its request in hand.
RESTART_S = 30.0
CONNECT_S = 30.0


class Gate:
    """The way to the gate for one HTTP connection, whose requests come one after the other."""

    def __init__(self, socket: str | None) -> None:
        self._socket = socket
        self._client: AsyncClient | None = None
        self._behalf: OnBehalf | None = None

    async def client(self, behalf: OnBehalf) -> AsyncClient:
        """The connected client that speaks for that end client.

        Raises Unavailable, Rejected and what is below it.
        """
        if self._client is not None and self._behalf != behalf:
            await self.close()
        if self._client is None:
            self._client = AsyncClient(
                self._socket,
                app=APP,
                connect_timeout=CONNECT_S,
                restart_timeout=RESTART_S,
                on_behalf=behalf,
            )
            self._behalf = behalf
        await self._client.connect()
        return self._client

    async def close(self) -> None:
        """Close the connection; what runs on it is cancelled. Safe to call twice."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
