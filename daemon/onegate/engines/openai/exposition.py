"""Figures in Prometheus' text format."""

import re

# One label behind the other: looked for anywhere, a text without any would take a while for each
# of its letters.
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]{0,99})="((?:[^"\\\n]|\\.){0,4000})",? ?')
# No count that can be true is above it.
_MAX = 1e12
# One for each model of each engine behind a server, with room to spare.
_MAX_ROWS = 1000

Rows = list[tuple[dict[str, str], float]]


def gauges(text: bytes, names: set[str]) -> dict[str, Rows]:
    """The rows of these names, each with its labels, a thousand at most. What cannot be read is
    left out."""
    wanted = b"|".join(re.escape(name.encode()) for name in sorted(names))
    # Only their lines are looked at: of the others a server may have any number.
    lines = re.compile(
        rb"^(" + wanted + rb")(?:\{([^}\n]{0,4000})\})? ([-+0-9.eE]{1,40})", re.MULTILINE
    )
    found: dict[str, Rows] = {}
    for n_rows, match in enumerate(lines.finditer(text)):
        if n_rows == _MAX_ROWS:
            break
        try:
            value = float(match[3])
        except ValueError:
            continue
        if 0 <= value <= _MAX:
            labels = _labels((match[2] or b"").decode("utf-8", "replace"))
            found.setdefault(match[1].decode(), []).append((labels, value))
    return found


def _labels(text: str) -> dict[str, str]:
    labels, at = {}, 0
    while (match := _LABEL.match(text, at)) is not None:
        labels[match[1]] = match[2]
        at = match.end()
    return labels
