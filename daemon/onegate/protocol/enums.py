"""The kind of enumeration that travels from daemon to client: closed here, open to read."""

from enum import StrEnum
from typing import Self


class OpenEnum(StrEnum):
    """An enumeration of which this version knows every member that it may write.

    A newer daemon may know more, and an older client must survive that: a value without a member
    becomes one that equals its own text, `known` being false. It is not kept anywhere, so compare
    such values by `==`; the members proper also by `is`.
    """

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        stranger = str.__new__(cls, value)
        stranger._name_ = "UNKNOWN"
        stranger._value_ = value
        return stranger

    @property
    def known(self) -> bool:
        """Whether this version has a member for the value."""
        return self._value_ in type(self)._value2member_map_
