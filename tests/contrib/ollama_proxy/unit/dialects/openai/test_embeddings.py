"""Vectors in the OpenAI API's shape."""

import base64
import json
import math
import struct

from onegate.protocol.content import Usage
from onegate_ollama_proxy.dialects.openai.embeddings import EmbeddingsWriter

USED = Usage(prompt_tok=7, output_tok=0)


def test_vectors_as_numbers():
    said = json.loads(EmbeddingsWriter("m", packed=False).whole([[0.5, 1.0], [2.0, 3.0]], USED, 5))
    assert [one["embedding"] for one in said["data"]] == [[0.5, 1.0], [2.0, 3.0]]
    assert [one["index"] for one in said["data"]] == [0, 1]
    assert said["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    assert (said["object"], said["model"]) == ("list", "m")


def test_vectors_packed():
    said = json.loads(EmbeddingsWriter("m", packed=True).whole([[0.5, 1e300]], USED, 5))
    packed = base64.b64decode(said["data"][0]["embedding"])
    assert struct.unpack("<2f", packed) == (0.5, math.inf)
