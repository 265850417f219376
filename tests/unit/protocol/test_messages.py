"""The façade: every message of both directions, and nothing that cannot be told apart."""

from typing import get_args

import msgspec

from onegate.protocol import answers, messages, requests

BOTH = (messages.ClientMessage, messages.DaemonMessage)


def tagged(module: object) -> set[type]:
    return {
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, msgspec.Struct)
        and value.__struct_config__.tag_field == "t"
        and not value.__name__.startswith("_")
    }


def test_every_message_is_in_the_union_of_its_direction() -> None:
    assert set(get_args(messages.ClientMessage)) == tagged(requests)
    assert set(get_args(messages.DaemonMessage)) == tagged(answers)


def test_everything_defined_there_can_be_imported_from_here() -> None:
    for module in (requests, answers):
        own = {
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", None) == module.__name__
            and isinstance(value, type)
            and not name.startswith("_")
        }
        assert own <= set(messages.__all__)
    assert set(messages.__all__) <= set(vars(messages))


def test_messages_are_immutable() -> None:
    for union in BOTH:
        assert all(kind.__struct_config__.frozen for kind in get_args(union))
