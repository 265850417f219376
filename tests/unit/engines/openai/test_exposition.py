from onegate.engines.openai.exposition import gauges


def test_the_rows_that_are_asked_for():
    text = (
        b'# HELP a x\n# TYPE a gauge\na{model="m,1",engine="0"} 3.0\na{model="n"} 1e1\nb 5\nc 7\n'
    )
    assert gauges(text, {"a", "b"}) == {
        "a": [({"model": "m,1", "engine": "0"}, 3.0), ({"model": "n"}, 10.0)],
        "b": [({}, 5.0)],
    }


def test_what_is_no_figure_is_left_out():
    text = b"a nan\na -1\na 1e300\na x\na\n\xff\na{b} 2\na{ 3\n<html>"
    assert gauges(text, {"a"}) == {"a": [({}, 2.0)]}
