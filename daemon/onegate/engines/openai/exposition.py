"""Figures in Prometheus' text format."""

import re

_LINE = re.compile(
    rb"^([a-zA-Z_:][a-zA-Z0-9_:]{0,199})(?:\{([^}\n]{0,4000})\})? ([-+0-9.eE]{1,40})"
)
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]{0,99})="((?:[^"\\]|\\.)*)"')
# No count that can be true is above it.
_MAX = 1e12

Rows = list[tuple[dict[str, str], float]]


def gauges(text: bytes, names: set[str]) -> dict[str, Rows]:
    """The rows of these names, each with its labels. What cannot be read is left out."""
    wanted = {name.encode() for name in names}
    found: dict[str, Rows] = {}
    for line in text.splitlines():
        if line.startswith(b"#") or (match := _LINE.match(line)) is None:
            continue
        if match[1] not in wanted:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if 0 <= value <= _MAX:
            labels = dict(_LABEL.findall((match[2] or b"").decode("utf-8", "replace")))
            found.setdefault(match[1].decode(), []).append((labels, value))
    return found
