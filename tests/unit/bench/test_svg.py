"""Plots are well-formed, and show what they were given."""

from xml.etree import ElementTree

from msgspec import structs

from onegate.bench.svg import Line, Plot, draw

TWO = Plot(
    title="A <title>",
    x="x & more",
    y="y",
    lines=[
        Line(name="chat <b>", points=[(0.0, 0.0), (5.0, 1.0)], colour=0),
        Line(name="batch", points=[(0.0, 1.0), (5.0, 0.5)], colour=7, dashed=True, stepped=True),
    ],
)


def parsed(plot: Plot) -> ElementTree.Element:
    return ElementTree.fromstring(draw(plot))


def test_lines_carry_their_name_colour_and_kind() -> None:
    root = parsed(TWO)
    one, two = [path for path in root.iter("path") if path.find("title") is not None]
    assert one.findtext("title") == "chat <b>"
    assert (one.get("class"), two.get("class")) == ("s0", "s1 dashed")
    assert one.get("d", "").count("L") == 1
    assert two.get("d", "").count("H") == two.get("d", "").count("V") == 1
    assert root.get("aria-label") == "A <title>: y against x & more"
    assert root.get("viewBox") == "0 0 560 336"


def test_two_lines_need_a_key_and_one_does_not() -> None:
    keys = [text.text for text in parsed(TWO).iter("text") if text.get("class") == "key"]
    assert keys == ["chat <b>", "batch"]
    alone = structs.replace(TWO, lines=TWO.lines[:1])
    assert not [text for text in parsed(alone).iter("text") if text.get("class") == "key"]


def test_marks_are_points_with_their_values() -> None:
    root = parsed(structs.replace(TWO, marks=True))
    titles = [circle.findtext("title") for circle in root.iter("circle")]
    assert titles == ["chat <b>: 0, 0", "chat <b>: 5, 1", "batch: 0, 1", "batch: 5, 0.5"]


def test_nothing_leaves_the_drawing() -> None:
    log = structs.replace(TWO, log_x=True)
    for plot in (TWO, log):
        for circle in parsed(structs.replace(plot, marks=True)).iter("circle"):
            assert 0 <= float(circle.get("cx", "")) <= 560
            assert 0 <= float(circle.get("cy", "")) <= 300
