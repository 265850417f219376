"""The page is whole, safe, and needs nothing else."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from msgspec import structs

from onegate.bench.page import page
from onegate.bench.report import Document, document

VOID = {"meta"}


class Balanced(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture
def doc(run: Any) -> Document:
    return document(run)


def test_it_is_well_formed_and_shows_every_class_and_plot(doc: Document) -> None:
    text = page(doc)
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    shown = " ".join(parser.texts)
    for words in ("chat, alone", "A ÷ B", "beside the others ÷ alone", "Time to first token"):
        assert words in shown
    assert text.count("<svg") == 3


def test_the_frontier_is_on_it_where_there_is_one(doc: Document, flood: Any) -> None:
    assert "The frontier: what a class waits" not in page(doc)
    text = page(document(flood))
    assert "<td>A  interactive.preempt=lower_rank</td>" in text
    assert "kept 0.900 (A ÷ A 1.100), at least 0.95: missed" in text


def test_every_remark_is_on_it(doc: Document) -> None:
    assert "a &lt;remark&gt;" in page(structs.replace(doc, remarks=["a <remark>"]))


def test_noise_is_said_first_and_only_then(doc: Document) -> None:
    assert "These figures mean nothing" in page(doc)
    assert "too loud" in page(doc)
    quiet = structs.replace(doc, complaints=[])
    assert "These figures mean nothing" not in page(quiet)


def test_nothing_is_loaded_and_nothing_runs(doc: Document) -> None:
    hostile = structs.replace(doc, title='<script src="http://x/">')
    text = page(hostile)
    assert "<script" not in text
    assert "default-src 'none'" in text
    assert not re.findall(r"https?://|url\(|@import|<link|<img", text.replace("http://x/", ""))


def test_both_colour_schemes_have_every_colour(doc: Document) -> None:
    light, dark = page(doc).split("@media(prefers-color-scheme:dark)")
    for name in ("ground", "ink", "soft", "rule", "warn", *(f"s{i}" for i in range(6))):
        assert f"--{name}:#" in light
        assert f"--{name}:#" in dark
