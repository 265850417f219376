"""How much memory the library holds for the forms of answers that it has seen.

It compiles a grammar when it is first followed, keeps it for as long as the model is loaded, and
has no bound for that. Whoever asks for another form each time would fill the machine, so the model
is loaded anew after some hundred of them, when nothing runs.
"""

from onegate.engines.host.engine import Refusal

# Measured with 2026.4.1 and a vocabulary of 49,152 tokens: 0.25 to 0.35 MB for a small grammar, and
# up to 200 bytes for each further character. A larger vocabulary takes more of both.
_BYTES_EACH = 300_000
_BYTES_PER_CHAR = 200

# From here on the model is loaded anew as soon as nothing runs, and here no new form is taken.
WORN_BYTES = 128 * 1024 * 1024
FULL_BYTES = 1024 * 1024 * 1024


class Forms:
    """The grammars that one loaded model has been given."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._held_bytes = 0

    @property
    def worn(self) -> bool:
        """Whether the model is to be loaded anew."""
        return self._held_bytes >= WORN_BYTES

    def take(self, grammar: str, *, resumed: bool) -> None:
        """This one is about to be followed. Raises Refusal, `unavailable`, where there is no room
        for another; what goes on with an answer has always room."""
        key = hash(grammar)
        if key in self._seen:
            return
        if self._held_bytes >= FULL_BYTES and not resumed:
            raise Refusal(
                "unavailable",
                "too many different forms were asked for since the model was loaded: it is loaded "
                "anew as soon as nothing runs",
            )
        self._seen.add(key)
        self._held_bytes += _BYTES_EACH + _BYTES_PER_CHAR * len(grammar)
