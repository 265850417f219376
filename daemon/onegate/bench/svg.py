"""Line and point plots as inline SVG; colours are the page's variables, so that both modes fit."""

from collections.abc import Sequence
from html import escape

from msgspec import Struct

from onegate.bench.axis import Axis, axis

COLOURS = 6
_WIDTH, _HEIGHT = 560, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 12, 44
_LEGEND_LINE = 18


class Line(Struct, frozen=True, kw_only=True):
    """One series. `colour` numbers the page's colours; `dashed` tells a second side apart."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int
    dashed: bool = False
    stepped: bool = False


class Plot(Struct, frozen=True, kw_only=True):
    """A whole plot. `marks` draws points instead of lines, and names each in its tooltip."""

    title: str
    x: str
    y: str
    lines: list[Line]
    log_x: bool = False
    marks: bool = False


def draw(plot: Plot) -> str:
    """The plot as one `svg` element."""
    xs = [x for line in plot.lines for x, _ in line.points]
    ys = [y for line in plot.lines for _, y in line.points]
    rows = len(plot.lines) if len(plot.lines) > 1 else 0
    across = axis(xs, begin=_LEFT, end=_WIDTH - _RIGHT, log=plot.log_x)
    up = axis(ys, begin=_HEIGHT - _BOTTOM, end=_TOP)
    parts = _grid(across, up, plot)
    for line in plot.lines:
        parts.append(_path(line, across, up, "thin " if plot.marks else ""))
        parts += _marks(line, across, up) if plot.marks else []
    parts += _legend(plot) if rows else []
    return _tag(
        "svg",
        "".join(parts),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT + rows * _LEGEND_LINE}",
        role="img",
        aria_label=f"{plot.title}: {plot.y} against {plot.x}",
    )


def _tag(name: str, content: str = "", **attributes: str | float) -> str:
    """An element; `content` is markup already, attributes are text. `class_` is `class`."""
    words = [
        f'{key.rstrip("_").replace("_", "-") if key != "viewBox" else key}="{_text(value)}"'
        for key, value in attributes.items()
    ]
    return f"<{' '.join([name, *words])}>{content}</{name}>"


def _text(value: str | float) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float | int) else escape(value)


def _grid(across: Axis, up: Axis, plot: Plot) -> list[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = []
    for value in up.ticks():
        y = up.place(value)
        parts.append(_tag("line", class_="grid", x1=_LEFT, x2=right, y1=y, y2=y))
        parts.append(
            _tag("text", f"{value:g}", class_="tick", x=_LEFT - 6, y=y + 4, text_anchor="end")
        )
    for value in across.ticks():
        x = across.place(value)
        parts.append(_tag("line", class_="grid", x1=x, x2=x, y1=bottom, y2=bottom + 4))
        parts.append(
            _tag("text", f"{value:g}", class_="tick", x=x, y=bottom + 17, text_anchor="middle")
        )
    parts.append(_tag("line", class_="axis", x1=_LEFT, x2=right, y1=bottom, y2=bottom))
    middle, turned = (_LEFT + right) / 2, (_TOP + bottom) / 2
    parts.append(_tag("text", escape(plot.x), x=middle, y=bottom + 36, text_anchor="middle"))
    turn = f"rotate(-90 14 {turned})"
    parts.append(_tag("text", escape(plot.y), x=14, y=turned, text_anchor="middle", transform=turn))
    return parts


def _path(line: Line, across: Axis, up: Axis, more: str) -> str:
    pieces: list[str] = []
    for x, y in line.points:
        px, py = _text(across.place(x)), _text(up.place(y))
        if not pieces:
            pieces.append(f"M{px} {py}")
        else:
            pieces.append(f"H{px}V{py}" if line.stepped else f"L{px} {py}")
    title = _tag("title", escape(line.name))
    return _tag("path", title, class_=more + _classes(line), d="".join(pieces))


def _marks(line: Line, across: Axis, up: Axis) -> list[str]:
    """The points themselves, each with its values in its tooltip."""
    found = []
    for x, y in line.points:
        title = _tag("title", escape(f"{line.name}: {x:.4g}, {y:.4g}"))
        place = {"cx": across.place(x), "cy": up.place(y)}
        found.append(_tag("circle", title, class_=_classes(line), r=5, **place))
    return found


def _legend(plot: Plot) -> list[str]:
    parts = []
    for row, line in enumerate(plot.lines):
        y = _HEIGHT + row * _LEGEND_LINE + 8
        parts.append(_tag("path", class_=_classes(line), d=f"M{_LEFT} {y}H{_LEFT + 26}"))
        parts.append(_tag("text", escape(line.name), class_="key", x=_LEFT + 34, y=y + 4))
    return parts


def _classes(line: Line) -> str:
    return f"s{line.colour % COLOURS}" + (" dashed" if line.dashed else "")
