import msgspec
import pytest

from onegate.engines.openai import shapes


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (shapes.UsagePiece, b'{"completion_tokens": -1}'),
        (shapes.UsagePiece, b'{"completion_tokens": 1e30}'),
        (shapes.Props, b'{"total_slots": 0}'),
        (shapes.TokenPiece, b'{"token": "x", "logprob": -1e30}'),
        (shapes.CallPiece, b'{"index": 9999}'),
        (shapes.Vector, b'{"embedding": [], "index": -1}'),
    ],
)
def test_numbers_have_bounds(kind, data):
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(data, type=kind)


def test_what_is_not_read_does_not_matter():
    piece = msgspec.json.decode(b'{"choices": [], "x": {"y": [1]}}', type=shapes.Piece)
    assert piece == shapes.Piece()
