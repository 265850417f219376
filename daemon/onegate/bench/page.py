"""The report as one HTML file that needs nothing else: tables, plots, both colour schemes."""

from collections.abc import Iterable, Sequence
from html import escape

from onegate.bench.plots import plots
from onegate.bench.report import Document, LoadReport
from onegate.bench.svg import draw
from onegate.bench.words import (
    FRONTIER,
    FRONTIER_HEAD,
    RATIO_HEAD,
    ROW_HEAD,
    effort,
    frontier_cells,
    frontier_lines,
    ratio_cells,
    ratio_tables,
    reason_lines,
    retry_lines,
    row_cells,
)

# Text contrast of 4.5 and more, line contrast of 3 and more against both grounds.
_STYLE = """
:root{color-scheme:light dark;--ground:#fcfcfb;--ink:#1c1d20;--soft:#5d6068;--rule:#dcdde0;
--warn:#9a3412;--s0:#0a66b2;--s1:#c2410c;--s2:#067a57;--s3:#9a3f86;--s4:#836400;--s5:#4b5f78}
@media(prefers-color-scheme:dark){:root{--ground:#17181b;--ink:#e8e9ec;--soft:#a2a6b0;
--rule:#34363c;--warn:#fdba74;--s0:#63b3f5;--s1:#f59562;--s2:#45cba0;--s3:#dd96cb;--s4:#e2bd4b;
--s5:#9fb4cf}}
body{margin:0 auto;max-width:76rem;padding:1.5rem;background:var(--ground);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:0 0 .25rem}h2{font-size:1.05rem;margin:2rem 0 .5rem}
p,dd,dt,li{margin:.15rem 0}.soft,dd{color:var(--soft)}.warn{color:var(--warn)}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .75rem .25rem 0;text-align:right;white-space:nowrap;
border-bottom:1px solid var(--rule)}th{font-weight:600;color:var(--soft)}
th:first-child,td:first-child{text-align:left}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr));gap:1.5rem}
figure{margin:0}figcaption{font-weight:600}svg{width:100%;height:auto}
svg text{font:12px system-ui,sans-serif;fill:var(--soft)}svg text.key{fill:var(--ink)}
.grid{stroke:var(--rule)}.axis{stroke:var(--soft)}svg path{fill:none;stroke-width:2;
stroke-linejoin:round}.thin{stroke-width:1;opacity:.5}.dashed{stroke-dasharray:6 4}
circle{stroke:var(--ground);stroke-width:2}dl{display:grid;grid-template-columns:max-content 1fr;
gap:0 1rem}
"""
_COLOURS = "".join(
    f"path.s{i}{{stroke:var(--s{i})}}circle.s{i}{{fill:var(--s{i})}}"
    # The second side's points are rings.
    f"circle.s{i}.dashed{{fill:var(--ground);stroke:var(--s{i});stroke-dasharray:none}}"
    for i in range(6)
)


def page(doc: Document) -> str:
    """The whole file."""
    return "".join(
        [
            '<!doctype html><html lang="en"><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            # Nothing is loaded and nothing runs, whatever a scenario's title says.
            '<meta http-equiv="Content-Security-Policy" ',
            "content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>{escape(doc.title)}</title><style>{_STYLE}{_COLOURS}</style>",
            *_head(doc),
            *(_load(report) for report in doc.loads),
            '<h2>Plots</h2><div class="plots">',
            *(
                f"<figure><figcaption>{escape(plot.title)}</figcaption>{draw(plot)}</figure>"
                for plot in plots(doc)
            ),
            "</div>",
            *_ratios(doc),
            *_frontier(doc),
            "<h2>What the words mean</h2><dl>",
            *(
                f"<dt>{escape(word)}</dt><dd>{escape(text)}</dd>"
                for word, text in doc.definitions.items()
            ),
            "</dl></html>\n",
        ]
    )


def _head(doc: Document) -> Iterable[str]:
    machine = doc.machine
    yield f"<h1>{escape(doc.title)}</h1>"
    for side in doc.sides:
        engine = side.facts.engine or "an unnamed engine"
        yield (
            f"<p>{side.side}: {escape(side.target)}, {escape(side.facts.model)} on "
            f"{escape(engine)}</p>"
        )
    yield (
        f'<p class="soft">{escape(machine.cpu)}, {machine.cores} cores, '
        f"{machine.memory_gib:g} GiB, Linux {escape(machine.kernel)}, "
        f"Python {escape(machine.python)}; "
        f"{doc.repeats} repeats of {doc.scenario.duration_s:g} s</p>"
    )
    for text in (*doc.remarks, effort(doc), *reason_lines(doc), *retry_lines(doc)):
        yield f'<p class="soft">{escape(text)}</p>'
    if doc.complaints:
        yield '<h2 class="warn">These figures mean nothing</h2><ul>'
        yield from (f'<li class="warn">{escape(text)}</li>' for text in doc.complaints)
        yield "</ul>"


def _load(report: LoadReport) -> str:
    rows = [row_cells(row, "") for row in report.together]
    rows += [row_cells(row, ", alone") for row in report.alone]
    # All columns side by side would be wider than a page.
    cut, title = ROW_HEAD.index("TTFT ms"), f"{report.side}, load {report.load:g}"
    counts = _table(title, ROW_HEAD[:cut], [row[:cut] for row in rows])
    head = (ROW_HEAD[0], *ROW_HEAD[cut:])
    times = [[row[0], *row[cut:]] for row in rows]
    return counts + _table(f"{title}: p50 / p95 / p99", head, times)


def _ratios(doc: Document) -> Iterable[str]:
    for title, found in ratio_tables(doc):
        yield _table(title, RATIO_HEAD, [ratio_cells(row, title) for row in found])


def _frontier(doc: Document) -> Iterable[str]:
    if doc.frontier:
        yield _table(FRONTIER, FRONTIER_HEAD, [frontier_cells(p, doc) for p in doc.frontier])
    yield from (f"<p>{escape(text)}</p>" for text in frontier_lines(doc))


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = "".join(f"<th>{escape(word)}</th>" for word in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return (
        f'<h2>{escape(title)}</h2><div class="wide"><table><thead><tr>{cells}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
