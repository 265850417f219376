"""What the modules of the stand-in share."""

import json
import os
import threading

OPTIONS = json.loads(os.environ.get("TLLM_STAND_IN", "{}"))
_LOG = os.environ.get("TLLM_STAND_IN_LOG")
_LOCK = threading.Lock()


class Strict(BaseException):
    """The adapter did what it must not. No `except Exception` of its hides it."""


def note(call, **facts):
    """One line of JSON for the test to read."""
    if _LOG:
        with _LOCK, open(_LOG, "a", encoding="utf-8") as file:
            file.write(json.dumps({"call": call, **facts}, default=repr) + "\n")


def strict(condition, text):
    """Raise Strict, and note it, unless the condition holds."""
    if not condition:
        note("strict", text=text)
        raise Strict(text)


class Fields:
    """A settings class that takes its fields by keyword and nothing else."""

    model_fields: dict = {}

    def __init__(self, **given):
        unknown = given.keys() - self.model_fields.keys()
        if unknown:
            raise ValueError(f"Extra inputs are not permitted: {', '.join(sorted(unknown))}")
        self._given = given
        for name, default in self.model_fields.items():
            setattr(self, name, given.get(name, default))

    def __repr__(self):
        return f"{type(self).__name__}({self._given})"
