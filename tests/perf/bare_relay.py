"""The least that a proxy can do, as what the real one is measured against.

    python -m tests.perf.bare_relay PORT URL

aiohttp on uvloop, every byte carried as it comes; no queue, no check, no log.
"""

import asyncio
import sys

import aiohttp
import uvloop
from aiohttp import web


async def serve(port: int, url: str) -> None:
    """Until it is ended."""
    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:

        async def carry(request: web.BaseRequest) -> web.StreamResponse:
            body = await request.read()
            async with session.request(request.method, url + request.path, data=body) as answer:
                kept = {"Content-Type": answer.headers["Content-Type"]}
                said = web.StreamResponse(status=answer.status, headers=kept)
                await said.prepare(request)
                async for data in answer.content.iter_any():
                    await said.write(data)
                await said.write_eof()
                return said

        runner = web.ServerRunner(web.Server(carry, handler_cancellation=True))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), sys.argv[2]))
