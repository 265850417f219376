"""What one user may use of a class in a day."""

import pytest

from onegate.config import UsageConfig, check
from onegate.protocol.errors import Reason
from onegate.server.live import LiveRequests, Mute
from onegate.server.outcome import Outcome
from onegate.server.quota import Quotas
from onegate.server.usage import MS_PER_DAY, UsageTable

# An hour before midnight UTC.
NOW_MS = 20_000 * MS_PER_DAY - 3_600_000
RATION = '[[class]]\nname = "batch"\ndaily_tok = 1000\n'


class Played:
    def __init__(self, text: str = RATION, principals: int = 64) -> None:
        self.classes = check(text).classes
        self.usage = UsageTable(lambda: UsageConfig(principals_per_day=principals))
        self.live = LiveRequests(boot="b")
        self.quotas = Quotas(self.usage, self.live, lambda: self.classes)

    def used(self, tok: int, principal: str = "uid:1", class_: str = "batch") -> None:
        self.usage.ended(
            principal=principal,
            class_=class_,
            outcome=Outcome.FINISHED,
            now_ms=NOW_MS,
            prompt_tok=tok - 1,
            output_tok=1,
        )

    def runs(self, tok: int, *, granted: bool = True, principal: str = "uid:1") -> None:
        client = Mute(principal=principal, uid=1)
        live = self.live.open(client=client, id=1, verb="generate", arrived_ns=0)
        live.class_ = "batch"
        live.granted_ns = 1 if granted else None
        live.prompt_tok, live.output_tok = tok - 1, 1

    def full(self, principal: str = "uid:1", class_: str = "batch", now_ms: int = NOW_MS) -> bool:
        cls = next(cls for cls in self.classes if cls.name == class_)
        return self.quotas.full(principal, cls, now_ms) is not None


def test_up_to_the_ration_and_no_more() -> None:
    played = Played()
    played.used(999)
    assert not played.full()
    played.used(1)
    assert played.full()


def test_the_refusal_says_how_much_and_when_to_come_back() -> None:
    played = Played()
    played.used(1200)
    full = played.quotas.full("uid:1", played.classes[2], NOW_MS)
    assert full is not None
    assert (full.outcome, full.reason) == (Outcome.REJECTED, Reason.PEER_QUOTA)
    assert (full.limit, full.used, full.retry_after_ms) == (1000, 1200, 3_600_000)
    assert "1200 tokens of class batch today, and 1000 are yours" in full.message


def test_a_new_day_is_a_new_ration() -> None:
    played = Played()
    played.used(5000)
    assert played.full(now_ms=NOW_MS + 3_599_999)
    assert not played.full(now_ms=NOW_MS + 3_600_000)


def test_of_each_user_and_class() -> None:
    played = Played()
    played.used(5000)
    played.used(5000, class_="loop")
    assert not played.full("uid:2")
    assert not played.full(class_="loop")
    assert not Played("").full()


def test_what_runs_counts_as_far_as_it_has_come_and_what_waits_does_not() -> None:
    played = Played()
    played.used(500)
    played.runs(499)
    played.runs(9000, granted=False)
    played.runs(9000, principal="uid:2")
    assert not played.full()
    played.runs(2)
    assert played.full()


@pytest.mark.parametrize(("principals", "full"), [(2, True), (3, False)])
def test_those_without_a_row_share_one_ration(principals: int, full: bool) -> None:
    played = Played(principals=principals)
    for principal in ("uid:1", "uid:2", "uid:3"):
        played.used(1000, principal)
    assert played.full("uid:1")
    assert played.full("uid:4") is full  # with uid:3 among the others


def test_what_is_left_is_said_by_class() -> None:
    played = Played(RATION + '[[class]]\nname = "loop"\ndaily_tok = 77777\n')
    played.used(1200)
    daily = played.quotas.of("uid:1", NOW_MS)
    assert {class_: (use.used_tok, use.limit_tok) for class_, use in daily.items()} == {
        "loop": (0, 77_777),
        "batch": (1200, 1000),
    }
    assert daily["batch"].resets_in_ms == 3_600_000
