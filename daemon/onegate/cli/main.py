"""`onegate`: one file per verb, loaded when it is asked for."""

import sys
import traceback
from importlib import import_module

from onegate import __version__
from onegate.cli.exits import Exit, UsageError, error_document, exit_of, sentence
from onegate.cli.streams import OutputError, prepare, silence
from onegate.cli.terminal import complain, on_terminal, say_json
from onegate.client.errors import OnegateError

# In the order of --help: daily use, looking, scripts, administration.
VERBS = (
    *("ask", "chat", "whoami", "capacity", "status", "wait-ready", "check-config", "metrics"),
    *("doctor", "usage", "pause", "unpause", "cancel", "release-gpu", "demo", "bench"),
)

EPILOGUE = """\
**Exit codes**: 0 done · 64 usage · 65 bad data · 69 no daemon or engine · 70 a bug · 74 the answer
cannot be written · 75 refused for now, the hint is on standard error · 77 not permitted · 78 bad
configuration · 130 interrupted · 141 whoever read the output went away. `bench` adds 3: the machine
was too noisy to say.

**Environment**: ONEGATE_SOCKET says where the daemon listens; NO_COLOR switches colour off.
"""


def run(arguments: list[str]) -> int:
    """Carry out one command line and return its exit code. Nothing is raised."""
    try:
        try:
            return _carry_out(arguments)
        except OnegateError as error:
            if _wants_json(arguments):
                say_json(error_document(error))
            complain(sentence(error))
            return exit_of(error)
        except UsageError as error:
            if _wants_json(arguments):
                say_json({"error": {"reason": None, "message": str(error)}})
            verb = f"{arguments[0]} " if arguments and arguments[0] in VERBS else ""
            complain(f"{error}; `onegate {verb}--help` shows how")
            return Exit.USAGE
    except KeyboardInterrupt:
        if on_terminal(sys.stderr):
            sys.stderr.write("\n")
        return Exit.INTERRUPTED
    except OutputError as error:
        return _unwritten(error)
    except Exception:  # last line of defence: a traceback is for us, the sentence for the caller
        traceback.print_exc()
        complain("this is a bug in onegate; please report it with the lines above")
        return Exit.BUG


def _unwritten(error: OutputError) -> int:
    """Whoever read the output has enough, which is no news; anything else is said."""
    silence(sys.stdout)
    if error.reader_left:
        return Exit.PIPE_CLOSED
    complain(str(error))
    return Exit.UNWRITTEN


def _carry_out(arguments: list[str]) -> int:
    from cyclopts import App, CycloptsError

    app = App(
        name="onegate",
        version=__version__,
        version_flags=["--version"],
        help="Ask the one gate of this machine for generated text, and look after it.",
        help_format="markdown",
        help_epilogue=EPILOGUE,
        suppress_keyboard_interrupt=False,
    )
    first = arguments[0] if arguments else "-"
    if first not in VERBS and not first.startswith("-"):
        raise UsageError(f"there is no verb {first!r}; there are {', '.join(VERBS)}")
    # One verb is loaded where one is named; all of them only to list them.
    named = [verb for verb in arguments[:1] if verb in VERBS]
    for place, verb in enumerate(named or VERBS):
        name = verb.replace("-", "_")
        app.command(getattr(import_module(f"onegate.cli.{name}"), name), name=verb, sort_key=place)
    if not arguments:
        app.help_print()
        return Exit.USAGE
    try:
        result = app(
            arguments, exit_on_error=False, print_error=False, result_action="return_value"
        )
    except CycloptsError as error:
        raise UsageError(str(error).rstrip(". ")) from error
    return result if isinstance(result, int) else Exit.DONE


def _wants_json(arguments: list[str]) -> bool:
    flags = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in flags


def main() -> None:
    """Entry point of `onegate`."""
    prepare()
    try:
        import cyclopts  # noqa: F401
        import rich  # noqa: F401
    except ImportError:
        complain("the command line needs two more packages: pip install 'onegate[cli]'")
        sys.exit(Exit.UNAVAILABLE)
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OutputError as error:
        code = _unwritten(error)
    sys.exit(code)
