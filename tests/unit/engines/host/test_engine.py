from onegate.engines.base import EngineSnapshot
from onegate.engines.host.engine import StepReport, too_large
from onegate.engines.host.wire import Prefilled


def test_a_report_is_worth_sending_when_anything_is_in_it():
    assert not StepReport()
    assert not StepReport(pools_changed=True, raw=b"x")
    assert StepReport(freed=[1])
    assert StepReport(prefilled=[Prefilled(id=1, prefilled_tok=1)])
    assert StepReport(snapshot=EngineSnapshot(model="m"))


def test_too_large_has_both_numbers():
    refusal = too_large(10, 5)
    assert (refusal.code, refusal.need_tok, refusal.limit_tok) == ("too_large", 10, 5)
    assert "10" in str(refusal)
