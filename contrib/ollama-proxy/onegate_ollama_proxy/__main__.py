"""`onegate-ollama-proxy`: command line, sockets, event loop, exit code."""

import argparse
import asyncio
import os
import signal
import socket
import sys

import uvloop

from onegate import __version__
from onegate_ollama_proxy.app import BACKLOG, App
from onegate_ollama_proxy.config import Config, ConfigError, load
from onegate_ollama_proxy.listeners import Listener, listener_of
from onegate_ollama_proxy.log import Level, Log
from onegate_ollama_proxy.notify import Notifier
from onegate_ollama_proxy.sockets import ListenError, is_here, sockets_for
from onegate_ollama_proxy.who import Clients, LinuxKernel

EPILOG = """
Sockets handed over by systemd are used; for a listener without one, its address is bound.

signals: TERM and INT let what runs end for drain_timeout_s, and stop.

exit codes: 0 stopped when told to; 64 usage; 69 nothing to listen on; 78 bad configuration.

example: onegate-ollama-proxy --config ./ollama-proxy.toml
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="onegate-ollama-proxy",
        description="Ollama's HTTP API in front of the gate.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--config", metavar="FILE", help="configuration; all of it is optional")
    made.add_argument("--gate", metavar="PATH", help="the gate's socket")
    made.add_argument("--check", action="store_true", help="read the configuration, and stop")
    made.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    return made


def main() -> None:
    """Run the proxy; the process's exit code says how it ended."""
    try:
        arguments = parser().parse_args()
    except SystemExit as end:
        sys.exit(os.EX_USAGE if end.code else os.EX_OK)
    log = Log.for_stream(sys.stderr, os.environ)
    notifier = Notifier.from_environ(os.environ)
    try:
        config = load(arguments.config, os.environ, gate=arguments.gate)
        listeners = [listener_of(each) for each in config.listeners]
        if arguments.check:
            sys.exit(os.EX_OK)
        sockets = sockets_for([each.endpoint for each in config.listeners], os.environ, BACKLOG)
    except ConfigError as error:
        log.line(Level.ERROR, "config_error", detail=str(error))
        sys.exit(os.EX_CONFIG)
    except ListenError as error:
        log.line(Level.ERROR, "listen_error", detail=str(error))
        sys.exit(os.EX_UNAVAILABLE)
    uvloop.run(serve(config, listeners, sockets, log, notifier))


async def serve(
    config: Config,
    listeners: list[Listener],
    sockets: list[socket.socket],
    log: Log,
    notifier: Notifier,
) -> None:
    """Serve until told to stop."""
    kernel = LinuxKernel()
    app = App(config, clients=Clients(kernel), log=log)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    for listener, sock in zip(listeners, sockets, strict=True):
        if not is_here(sock):
            log.line(Level.WARNING, "address_not_here_yet", address=listener.config.address)
        await app.listen(listener, sock)
    addresses = ", ".join(each.address for each in config.listeners)
    log.line(Level.NOTICE, "serving", addresses=addresses, upstream=config.upstream)
    notifier.say("READY=1", f"STATUS=serving {addresses}")
    await _until(stop, notifier)
    log.line(Level.NOTICE, "stopping")
    notifier.say("STOPPING=1", "STATUS=letting what runs end")
    await app.aclose(config.drain_timeout_s)
    kernel.close()
    log.line(Level.NOTICE, "stopped")


async def _until(stop: asyncio.Event, notifier: Notifier) -> None:
    """Wait for the end, and say meanwhile that the loop turns."""
    while not stop.is_set():
        notifier.say("WATCHDOG=1")
        try:
            async with asyncio.timeout(notifier.watchdog_s):
                await stop.wait()
        except TimeoutError:
            continue


if __name__ == "__main__":
    main()
