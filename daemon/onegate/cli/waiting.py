"""What a verb waits for, said while it waits: it hears nothing itself until it is done."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onegate.cli.terminal import complain
from onegate.client.errors import OnegateError

# What is answered within this needs no word.
LOOK_S = 2.0


@contextmanager
def saying(look: Callable[[], str | None]) -> Iterator[None]:
    """Complain of what `look` says, once for each thing that it says, for as long as the body takes
    more than a moment. `look` runs in another thread, and None is nothing. Nothing is said once the
    body has ended."""
    done, saying_it = threading.Event(), threading.Lock()

    def watch() -> None:
        said: str | None = None
        while not done.wait(LOOK_S):
            try:
                text = look()
            except OnegateError:
                return  # the body finds out by itself what is wrong
            with saying_it:
                if text is not None and text != said and not done.is_set():
                    said = text
                    complain(text)

    # A daemon thread: Ctrl-C ends the command, whatever this one waits for.
    thread = threading.Thread(target=watch, name="waiting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        with saying_it:
            done.set()
