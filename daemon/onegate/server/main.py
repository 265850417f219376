"""`onegated`: command line, configuration, event loop, exit code."""

import argparse
import gc
import os
import resource
import signal
import sys
import traceback
from contextlib import suppress

import uvloop

from onegate import __version__
from onegate.config import Config, ConfigError, load, socket_path, usage_directory
from onegate.engines.plan import EngineUnprepared
from onegate.server.app import App
from onegate.server.listener import Listener, ListenError, adopt, bind, take_inherited
from onegate.server.log import Event, Log
from onegate.server.notify import Notifier

EPILOG = """
A socket handed over by systemd is used; otherwise one is bound, at --socket, ONEGATE_SOCKET,
gate.socket_path of the configuration, or else, for root, at /run/onegate/onegate.sock, and for
everybody else at onegate.sock in $XDG_RUNTIME_DIR, or in onegate/ of $XDG_CACHE_HOME or ~/.cache.

signals: TERM and INT drain (what runs may finish, what waits is refused with a hint) and exit, a
second INT aborts what still runs;
HUP reads the configuration again.

exit codes: 0 stopped when told to; 64 usage; 69 nothing to listen on; 70 a bug of ours;
78 bad configuration.

example: onegated --config ./onegate.toml --socket /tmp/onegate.sock
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="onegated",
        description="The one gate between local programs and the text-generation engine.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--config", metavar="FILE", help="configuration; all of it is optional")
    made.add_argument("--socket", metavar="PATH", help="listen here")
    made.add_argument("--version", action="version", version=f"onegated {__version__}")
    return made


def _own_uid() -> int | None:
    """The plain user whose private daemon this is; a service and root's daemon are nobody's."""
    private = os.getuid() != 0 and "INVOCATION_ID" not in os.environ
    return os.getuid() if private else None


def _raise_fd_limit() -> None:
    """Take as many descriptors as allowed: the soft limit is for programs that use select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _handed_over() -> Listener | None:
    inherited = take_inherited(os.environ, os.getpid())
    return None if inherited is None else adopt(inherited)


def _bind(config: Config, path: str | None) -> Listener:
    gate = config.gate
    said = path or os.environ.get("ONEGATE_SOCKET") or gate.socket_path
    place = (
        os.path.abspath(path) if path else socket_path(config, environ=os.environ, uid=os.getuid())
    )
    if not said:
        # The home of a new account has no .cache yet. Of a path that somebody said no tree is made.
        with suppress(OSError):  # bind says what is wrong
            os.makedirs(os.path.dirname(os.path.dirname(place)), 0o700, exist_ok=True)
    return bind(
        place,
        mode=gate.socket_mode,
        group=gate.socket_group,
        backlog=gate.socket_backlog,
    )


def main() -> None:
    """Run the daemon; the process's exit code says how it ended."""
    try:
        arguments = parser().parse_args()
    except SystemExit as end:
        sys.exit(os.EX_USAGE if end.code else os.EX_OK)
    # Until there is something to reload, or a reload that comes early would end the daemon.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    log = Log.for_stream(sys.stderr, os.environ)
    notifier = Notifier.from_environ(os.environ, os.getpid())

    def read() -> Config:
        return load(arguments.config, environ=os.environ, own_uid=_own_uid())

    handed_over: Listener | None = None
    try:
        handed_over = _handed_over()
        config = read()
        listener = handed_over or _bind(config, arguments.socket)
    except ConfigError as error:
        for problem in error.errors:
            log.event(Event.CONFIG_ERROR, detail=str(problem))
        if handed_over is not None:
            handed_over.turn_away()
        sys.exit(os.EX_CONFIG)
    except ListenError as error:
        log.event(Event.CONFIG_ERROR, detail=str(error))
        sys.exit(os.EX_UNAVAILABLE)

    async def run() -> int:
        directory = usage_directory(
            config.usage,
            environ=os.environ,
            private=arguments.socket is not None,
            handed_over=listener.inherited,
        )
        app = App(
            config,
            listener=listener,
            notifier=notifier,
            log=log,
            reload=read,
            usage_directory=directory,
        )
        # What exists now lives as long as the process. Looking through it again would cost each
        # full collection 10 ms of the loop.
        gc.collect()
        gc.freeze()
        return await app.run()

    _raise_fd_limit()
    try:
        code = uvloop.run(run())
    except EngineUnprepared as error:
        listener.turn_away()
        listener.close()
        log.event(Event.CONFIG_ERROR, detail=str(error))
        sys.exit(os.EX_CONFIG)
    except Exception as error:
        # Whatever comes this far is a bug of ours: the journal gets it, and the exit code says so.
        log.event(Event.BUG, detail=f"{type(error).__name__}: {error}")
        traceback.print_exc()
        sys.exit(os.EX_SOFTWARE)
    sys.exit(code)


if __name__ == "__main__":
    main()
