"""Vectors in the OpenAI API's shape."""

import base64
import sys
from array import array
from typing import Any

import msgspec

from onegate.protocol.content import Usage


class EmbeddingsWriter:
    """`/v1/embeddings`; `packed` as base64 of little-endian 32-bit floats."""

    document_type = "application/json; charset=utf-8"

    def __init__(self, model: str, *, packed: bool) -> None:
        self._model = model
        self._packed = packed

    def whole(self, vectors: list[list[float]], usage: Usage, took_ns: int) -> bytes:
        """One document; how long it took has no place in it."""
        data = [
            {"object": "embedding", "embedding": self._one(vector), "index": i}
            for i, vector in enumerate(vectors)
        ]
        used = {"prompt_tokens": usage.prompt_tok, "total_tokens": usage.prompt_tok}
        return msgspec.json.encode(
            {"object": "list", "data": data, "model": self._model, "usage": used}
        )

    def _one(self, vector: list[float]) -> Any:
        if not self._packed:
            return vector
        # What is too large for 32 bits becomes infinite here, as it does in everybody's arithmetic.
        packed = array("f", vector)
        if sys.byteorder == "big":
            packed.byteswap()
        return base64.b64encode(packed).decode("ascii")
