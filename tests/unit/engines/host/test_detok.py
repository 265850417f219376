from hypothesis import given
from hypothesis import strategies as st

from onegate.engines.host.detok import TokenText, take_all


def decode(batch):
    """Bytes as tokens; what is no whole character makes no text, as in the embedded engine."""
    return [bytes(ids).decode("utf-8", "ignore") for ids in batch]


def decode_with_replacement(batch):
    return [bytes(ids).decode("utf-8", "replace") for ids in batch]


def stream(ids, decoder=decode, text=None):
    text = text or TokenText()
    pieces = []
    for id in ids:
        text.push(id)
        pieces += take_all([text], decoder)
    rest = text.take(*decoder(text.windows()), last=True)
    return pieces, rest


def test_a_character_comes_with_its_last_byte():
    fox = list("🦊".encode())
    assert stream([97, *fox, 98]) == (["a", "", "", "", "🦊", "b"], "")


def test_a_replacement_character_is_waited_for():
    fox = list("🦊!".encode())
    pieces, rest = stream(fox, decode_with_replacement)
    assert pieces == ["", "", "", "🦊", "!"]
    assert rest == ""


def test_what_stays_unfinished_comes_at_the_end():
    pieces, rest = stream([97, 0xF0, 0x9F], decode_with_replacement)
    assert pieces == ["a", "", ""]
    assert rest == "\ufffd"


def test_one_call_for_all_sequences():
    calls = []

    def counted(batch):
        calls.append(len(batch))
        return decode(batch)

    texts = [TokenText() for _ in range(3)]
    for n, text in enumerate(texts):
        text.push(97 + n)
    assert take_all(texts, counted) == ["a", "b", "c"]
    assert calls == [6]
    assert take_all([], counted) == []
    assert calls == [6]


@given(st.text(max_size=30))
def test_the_pieces_are_the_text(text):
    pieces, rest = stream(list(text.encode()))
    assert "".join(pieces) + rest == text


@given(st.text(min_size=1, max_size=30), st.data())
def test_a_run_that_is_primed_goes_on_where_the_text_ended(text, data):
    ids = list(text.encode())
    cut = data.draw(st.integers(0, len(ids)))
    for decoder in (decode, decode_with_replacement):
        primed = TokenText()
        before = primed.prime(ids[:cut], decoder)
        pieces, rest = stream(ids[cut:], decoder, primed)
        assert before + "".join(pieces) + rest == text
