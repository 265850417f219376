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


def test_there_is_an_end_of_rows():
    text = b"a 1\n" * 5000 + b"b 2\n"
    found = gauges(text, {"a", "b"})
    assert len(found["a"]) == 1000
    assert "b" not in found


def test_labels_stand_one_behind_the_other():
    text = b'a{x="1", y="q\\"2",z="3"} 1\na{junk x="1"} 2\na{x="1",,y="2"} 3\nb 4\n'
    labels = [labels for labels, _ in gauges(text, {"a"})["a"]]
    assert labels == [{"x": "1", "y": 'q\\"2', "z": "3"}, {}, {"x": "1"}]
