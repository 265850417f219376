"""Whether something that came as msgpack is JSON, which holds less, and stays within bounds."""

import math
from collections.abc import Iterator
from typing import Any

Problem = tuple[str, str]  # (path of the field, sentence that says what to do)

# A schema nested deeper or longer than this is a mistake or an attack: the largest tool lists in
# use have some thousand nodes, and every node costs a hundred bytes once it is decoded.
MAX_JSON_DEPTH = 64
MAX_JSON_NODES = 16_384


class JsonBudget:
    """Checks that decoded msgpack is JSON: what it may hold, how deep, how much in all."""

    def __init__(self) -> None:
        self._left_nodes = MAX_JSON_NODES

    def check(self, path: str, root: dict[str, Any]) -> Iterator[Problem]:
        """Problems of one document, counted against what earlier ones left."""
        level: list[Any] = [root]
        for _ in range(MAX_JSON_DEPTH):
            self._left_nodes -= len(level)
            if self._left_nodes < 0:
                yield path, f"is too long: {MAX_JSON_NODES} values are taken in all"
                return
            below: list[Any] = []
            for node in level:
                if isinstance(node, dict):
                    if not all(isinstance(key, str) for key in node):
                        yield path, "has a key that is no string: it must be JSON"
                    below.extend(node.values())
                elif isinstance(node, list):
                    below.extend(node)
                elif not isinstance(node, str | int | float | None):
                    yield path, "holds bytes, a timestamp or an extension: it must be JSON"
                elif isinstance(node, float) and not math.isfinite(node):
                    yield path, "holds a number that is not finite: it must be JSON"
            level = below
            if not level:
                return
        yield path, f"is nested too deeply: {MAX_JSON_DEPTH} levels are taken"
