"""Which Ollama this is, and what its version can do.

The server does not say what it can do, and it ignores what it does not know: a parameter that it
would ignore has to be refused by its version.
"""

import re
from dataclasses import dataclass

_FORM = re.compile(r"v?(\d{1,6})\.(\d{1,6})\.(\d{1,6})(?![\d.])")

# Log-probabilities came with 0.12.11, `/api/status` with 0.16.2. `truncate` came to chats with one
# of 0.12's releases before 0.12.11.
_LOGPROBS = (0, 12, 11)
_WHOLE_PROMPTS = (0, 12, 11)
_STATUS = (0, 16, 2)
# What a build from source calls itself; it is taken for a new one.
_UNRELEASED = (0, 0, 0)


@dataclass(frozen=True)
class Version:
    """`text` as the server says it; `number` None where it is no version number."""

    text: str
    number: tuple[int, int, int] | None

    @property
    def logprobs(self) -> bool:
        """Whether `logprobs` and `top_logprobs` are honoured and not ignored."""
        return self._since(_LOGPROBS)

    @property
    def whole_prompts(self) -> bool:
        """Whether `truncate = false` is honoured: older ones leave out the oldest messages of a
        conversation that does not fit, and the beginning of a message, and say so to nobody."""
        return self._since(_WHOLE_PROMPTS)

    @property
    def status(self) -> bool:
        """Whether `/api/status` is there, which says if the cloud is switched off."""
        return self._since(_STATUS)

    def _since(self, first: tuple[int, int, int]) -> bool:
        # An unreadable version is not trusted with anything that would be ignored silently.
        if self.number is None:
            return False
        return self.number == _UNRELEASED or self.number >= first


def parse_version(text: str) -> Version:
    """A version such as `0.9.3`, `v0.33.0-rc2` or `0.5.4-ipexllm-20250407`."""
    match = _FORM.match(text)
    number = None if match is None else (int(match[1]), int(match[2]), int(match[3]))
    return Version(text=text, number=number)
