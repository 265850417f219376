"""`onegate bench`: an open-loop load of several classes, against this daemon or something else."""

import asyncio
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from onegate.bench.conduct import Conductor, Settings, Tell, refuse_users
from onegate.bench.failures import broken, warnings
from onegate.bench.page import page
from onegate.bench.read import lasting, load_scenario, shipped, shipped_text
from onegate.bench.report import Document, document, plain
from onegate.bench.scenario import Scenario
from onegate.bench.targets.base import TargetError
from onegate.bench.targets.spec import FORMS, PRIVATE_KINDS, Spec, engine_text, read_spec
from onegate.bench.vary import read_vary
from onegate.cli.bench_table import print_report
from onegate.cli.demo import configuration, wait_for_model
from onegate.cli.endings import Endings
from onegate.cli.exits import Exit, UsageError
from onegate.cli.options import Json, Socket
from onegate.cli.private_daemon import DaemonEnded, PrivateDaemon
from onegate.cli.terminal import Progress, complain, say, say_json
from onegate.config import ConfigError
from onegate.config.engine_tables import EngineChoice

_BAR = 24
_MOST = 64  # repeats, and generators
# Each with a model in memory.
_SIDES = "ABCDEFGH"


def bench(
    scenario: Annotated[
        str | None,
        Parameter(
            name="SCENARIO",
            help="Name of a shipped scenario, a path to your own, or trace:FILE.",
        ),
    ] = None,
    /,
    *,
    on: Annotated[str, Parameter(help=f"What to measure: {FORMS}.")] = "gate",
    vs: Annotated[
        str | None, Parameter(help="Measure this too, in turn with the other, and print ratios.")
    ] = None,
    vary: Annotated[
        str | None,
        Parameter(
            help="Instead of one private daemon several, one for each value of a setting of a "
            "class: CLASS.KEY=VALUE,VALUE. The last one is what the others are compared with."
        ),
    ] = None,
    aa: Annotated[
        bool,
        Parameter(negative="", help="First measure the target against itself, for the noise."),
    ] = False,
    repeats: Annotated[int, Parameter(help="How often each part is run.")] = 3,
    duration: Annotated[
        float | None, Parameter(help="Seconds of the measured window, instead of the scenario's.")
    ] = None,
    generators: Annotated[
        int, Parameter(help="Processes that send, for each side and user of the scenario.")
    ] = 1,
    html: Annotated[
        Path | None, Parameter(help="Also write the report, with plots, to this HTML file.")
    ] = None,
    show: Annotated[
        bool, Parameter(negative="", help="Print the scenario instead; without one, list them.")
    ] = False,
    json: Json = False,
    socket: Socket = None,
) -> int:
    """Send a scheduled load and say how each class fared, alone and beside the others.

    Requests are sent at their moment whatever became of earlier ones, so a stall of the target
    shows in full. Exit code 3 means that the machine or the generator was too busy with other
    things for the figures to mean anything; the report says what it was. Exit code 69 means that
    a target finished nothing at all.

    **Examples**

    ```
    onegate bench chat
    onegate bench chat+loop+batch --vs host:/etc/onegate/onegate.toml --aa --html report.html
    onegate bench trace:AzureLLMInferenceTrace_conv.csv --repeats 1
    onegate bench flood --on embedded --vary interactive.preempt=lower_rank,never --aa
    onegate bench --show overload
    ```
    """
    try:
        _check_text(scenario, on, vs, vary, socket, None if html is None else str(html))
        if show:
            say(shipped_text(scenario).rstrip() if scenario else "\n".join(shipped()))
            return Exit.DONE
        if scenario is None:
            raise UsageError(f"name a scenario: {', '.join(shipped())}, or a path to your own")
        sides = _sides(on, vs, vary)
        if socket is not None:
            sides = {name: _at(spec, socket) for name, spec in sides.items()}
        settings = Settings(
            repeats=_within("--repeats", repeats),
            noise=aa,
            generators=_within("--generators", generators),
        )
        read = _scenario(scenario, duration)
        if html is not None and (why := _unwritable(html)) is not None:
            return _failed([f"{html} cannot be written: {why}"], json, Exit.UNWRITTEN)
        result = _measure(read, sides, settings)
    except ConfigError as error:
        return _failed(
            [f"{scenario}: {problem}" for problem in error.errors], json, Exit.BAD_CONFIG
        )
    except TargetError as error:
        return _failed([str(error)], json, Exit.UNAVAILABLE)
    written = html is None or _write(html, page(result))
    if json:
        say_json(plain(result))
    else:
        print_report(result)
    for text in (*warnings(result), *result.complaints):
        complain(text)
    if not written:
        return Exit.UNWRITTEN
    if sides_broken := broken(result):
        complain(f"nothing at all finished on {' and '.join(sides_broken)}")
        return Exit.UNAVAILABLE
    return Exit.DONE if result.quiet else Exit.TOO_NOISY


def _sides(on: str, vs: str | None, vary: str | None) -> dict[str, Spec]:
    """What is measured, in turn, by its letter in the report. Raises TargetError."""
    first = read_spec(on)
    found = [first]
    if vary is not None:
        if first.kind not in PRIVATE_KINDS:
            raise UsageError(f"--vary needs --on {' or '.join(PRIVATE_KINDS)}: its daemons are new")
        found = [msgspec.structs.replace(first, setting=setting) for setting in read_vary(vary)]
    if vs is not None:
        found.append(read_spec(vs))
    if len(found) > len(_SIDES):
        raise UsageError(f"at most {len(_SIDES)} are measured side by side, not {len(found)}")
    return dict(zip(_SIDES, found, strict=False))


def _check_text(*arguments: str | None) -> None:
    for text in arguments:
        try:
            (text or "").encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"{text!a} is not UTF-8") from error


def _unwritable(path: Path) -> str | None:
    """Why the report could not be written there, as far as that is known before it is."""
    place = path if path.exists() else path.parent
    if path.is_dir():
        return "it is a directory"
    if not place.exists():
        return f"there is no directory {place}"
    return None if os.access(place, os.W_OK) else "you may not"


def _write(path: Path, text: str) -> bool:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        # The measurement took minutes: it is still printed.
        complain(f"{path} cannot be written: {error.strerror}")
        return False
    return True


def _within(name: str, number: int) -> int:
    if not 1 <= number <= _MOST:
        raise UsageError(f"{name} takes a number from 1 to {_MOST}")
    return number


def _failed(texts: list[str], json: bool, code: Exit) -> int:
    if json:
        say_json({"error": {"reason": None, "message": "; ".join(texts)}})
    for text in texts:
        complain(text)
    return code


def _scenario(name: str, duration_s: float | None) -> Scenario:
    found = load_scenario(name)
    if duration_s is None:
        return found
    if not 0.1 <= duration_s <= 86_400:
        raise UsageError("--duration takes seconds from 0.1 to 86400")
    starts_s = max(cls.start_s for cls in found.classes)
    if duration_s <= starts_s:
        raise UsageError(f"a class of this scenario starts only after {starts_s:g} s")
    return lasting(found, duration_s)


def _at(spec: Spec, socket: str) -> Spec:
    """A daemon that was named no other way is the one that `--socket` names."""
    plain_gate = spec.kind == "gate" and not spec.where
    return msgspec.structs.replace(spec, where=socket) if plain_gate else spec


def _measure(scenario: Scenario, sides: dict[str, Spec], settings: Settings) -> Document:
    """Run it, with the private daemons that it needs. Raises TargetError."""
    for spec in sides.values():
        if spec.kind in ("host", *PRIVATE_KINDS):
            refuse_users(scenario, spec)
    progress = Progress()
    try:
        with Endings() as endings, asyncio.Runner() as runner, ExitStack() as stack:
            running = {name: _running(stack, spec) for name, spec in sides.items()}
            return endings.run(runner, lambda: _conduct(scenario, running, settings, progress))
    finally:
        progress.clear()


def _running(stack: ExitStack, spec: Spec) -> Spec:
    """The same target, started where it is a private one. Raises TargetError."""
    if spec.kind not in PRIVATE_KINDS:
        return spec
    daemon = stack.enter_context(PrivateDaemon(_config(spec)))
    try:
        wait_for_model(daemon)
    except DaemonEnded as error:
        raise TargetError(f"{spec}: {error}") from error
    return spec.at(daemon.socket)


def _config(spec: Spec) -> str:
    """A private daemon's: its engine, and its owner may do everything."""
    return (
        engine_text(spec)
        + configuration(EngineChoice("scripted"), os.getuid()).partition("\n\n")[2]
    )


async def _conduct(
    scenario: Scenario, sides: dict[str, Spec], settings: Settings, progress: Progress
) -> Document:
    def tell(now: Tell) -> None:
        progress.show(line(now))

    async with Conductor(scenario, sides, settings, tell) as conductor:
        return document(await conductor.run())


def line(now: Tell) -> str:
    """One line of progress: a bar for the whole run, and what is going on."""
    share = (now.number + (now.done / now.requests if now.requests else 0.0)) / max(1, now.of)
    full = round(share * _BAR)
    bar = "█" * full + "░" * (_BAR - full)
    return f"{bar} {now.number + 1}/{now.of} {now.part}: {now.done} of {now.requests} requests"
