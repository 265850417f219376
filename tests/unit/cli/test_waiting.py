"""What is said while a verb waits."""

import threading

import pytest

from onegate.cli import waiting
from onegate.cli.waiting import saying
from onegate.client.errors import Unavailable


class Words:
    """What was said, and a way to wait for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[str] = []
        self._heard = threading.Condition()
        monkeypatch.setattr(waiting, "LOOK_S", 0)
        monkeypatch.setattr(waiting, "complain", self._complain)

    def _complain(self, text: str) -> None:
        with self._heard:
            self.said.append(text)
            self._heard.notify_all()

    def wait(self, count: int) -> None:
        with self._heard:
            assert self._heard.wait_for(lambda: len(self.said) >= count, 60)


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Words:
    return Words(monkeypatch)


def test_each_thing_is_said_once(words: Words) -> None:
    texts = iter(["one", None, "one", "two"])
    with saying(lambda: next(texts, "two")):
        words.wait(2)
    assert words.said == ["one", "two"]


def test_nothing_is_said_of_what_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(waiting, "complain", said.append)
    with saying(lambda: "slow"):
        pass
    assert said == []


def test_nothing_is_said_after_the_end(words: Words) -> None:
    looking, ended = threading.Event(), threading.Event()

    def look() -> str:
        looking.set()
        assert ended.wait(60)
        return "too late"

    with saying(look):
        assert looking.wait(60)
    ended.set()
    for thread in threading.enumerate():
        if thread.name == "waiting":
            thread.join(60)
    assert words.said == []


def test_a_daemon_that_does_not_answer_is_the_bodys_to_find(words: Words) -> None:
    looked = threading.Event()

    def look() -> str:
        looked.set()
        raise Unavailable("it is gone")

    with saying(look):
        assert looked.wait(60)
    assert words.said == []
