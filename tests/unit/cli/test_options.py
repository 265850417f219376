"""Every verb spells shared flags alike, and its help is worth reading."""

import inspect
from importlib import import_module
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from cyclopts import Parameter

from onegate.cli import options
from onegate.cli.main import VERBS

SHARED = {
    name: value
    for name, value in vars(options).items()
    if get_args(value) and not name.startswith("_")
}


def function_of(verb: str) -> Any:
    name = verb.replace("-", "_")
    return getattr(import_module(f"onegate.cli.{name}"), name)


def flag(annotation: Any) -> str | None:
    for meta in getattr(annotation, "__metadata__", ()):
        if isinstance(meta, Parameter) and meta.name:
            return str(meta.name[0] if isinstance(meta.name, tuple) else meta.name)
    return None


@pytest.mark.parametrize("verb", VERBS)
def test_a_shared_flag_is_the_shared_one(verb: str) -> None:
    shared = {flag(value): value for value in SHARED.values()}
    hints = get_type_hints(function_of(verb), include_extras=True)
    for hint in hints.values():
        if flag(hint) in shared:
            assert hint == shared[flag(hint)]


@pytest.mark.parametrize("verb", VERBS)
def test_every_parameter_is_explained(verb: str) -> None:
    hints = get_type_hints(function_of(verb), include_extras=True)
    hints.pop("return")
    for name, hint in hints.items():
        metas = [x for x in getattr(hint, "__metadata__", ()) if isinstance(x, Parameter)]
        assert metas, name
        assert metas[0].help, name


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_shows_an_example_of_itself(verb: str) -> None:
    text = inspect.getdoc(function_of(verb)) or ""
    summary, _, rest = text.partition("\n\n")
    assert "\n" not in summary
    example = rest.partition("**Examples**")[2]
    assert f"onegate {verb}" in example


def test_there_is_something_to_share() -> None:
    assert {"Socket", "Json", "Class", "Model"} <= set(SHARED)
    assert all(get_origin(value) is not None for value in SHARED.values())
