import pytest

from onegate.engines.base import (
    EngineCapacity,
    EngineChunk,
    PoolInfo,
    PoolState,
    Reservation,
)
from onegate.engines.host.desk import Desk
from onegate.engines.host.engine import LoadFailed, Refusal, StepReport
from onegate.engines.host.wire import (
    Abort,
    AcceptedMsg,
    Attach,
    CallDone,
    CallFailed,
    CountCall,
    CountResult,
    EmbedCall,
    Exit,
    LoadCall,
    Output,
    PoolUpdate,
    RefusedMsg,
    Step,
    Submit,
    UnloadCall,
)
from onegate.protocol.errors import RemoteProtocolError

CAPACITY = EngineCapacity(max_seqs=2, max_context_tok=10, reservation=Reservation.GROW)


class Engine:
    """Does what it is told, a step later."""

    kind = "fake"
    version = "1"
    due = True

    def __init__(self):
        self.pool = PoolInfo(model="m", state=PoolState.READY, capacity=CAPACITY)
        self.inside = []
        self.aborted = []
        self.report = StepReport()
        self.broken = None

    @property
    def busy(self):
        return bool(self.inside) or self.pool.state is PoolState.LOADING

    def _become(self, state, error=None):
        self.pool = PoolInfo(model="m", state=state, capacity=CAPACITY, error=error)

    def pools(self):
        return [self.pool]

    def load(self, model):
        if model != "m":
            raise Refusal("invalid", "no such pool")
        if self.pool.state is not PoolState.READY:
            self._become(PoolState.LOADING)

    def unload(self, model):
        assert not self.inside
        self._become(PoolState.COLD)

    def submit(self, request):
        if request.prompt == "bad":
            raise Refusal("too_large", "too much", need_tok=11, limit_tok=10)
        self.inside.append(request.id)
        return AcceptedMsg(id=request.id, prompt_tok=1)

    def abort(self, id):
        self.aborted.append(id)

    def running(self, model):
        return list(self.inside)

    def count(self, call):
        if call.prompt == "bad":
            raise Refusal("unsupported", "cannot")
        return 3, True

    def step(self):
        if self.broken is not None:
            raise self.broken
        report, self.report = self.report, StepReport()
        for id in self.aborted:
            if id in self.inside:
                self.inside.remove(id)
                report.freed.append(id)
        self.aborted = []
        if self.pool.state is PoolState.LOADING:
            self._become(PoolState.READY)
            return StepReport(stepped=False, pools_changed=True)
        return report


class Out:
    def __init__(self):
        self.said = []

    def post(self, message):
        self.said.append(message)

    def post_raw(self, data):
        self.said.append(data)

    def take(self):
        said, self.said = self.said, []
        return said


@pytest.fixture
def out():
    return Out()


@pytest.fixture
def engine():
    return Engine()


@pytest.fixture
def desk(engine, out):
    return Desk(engine, out)


@pytest.fixture
def submit(desk, make_request):
    return lambda id, prompt="x", **given: desk.take(
        Submit(request=make_request(prompt, id=id, **given))
    )


def test_a_request_is_accepted_or_refused_once(submit, out):
    submit(1)
    submit(2, "bad")
    submit(3, model="other")
    accepted, refused, unknown = out.take()
    assert accepted == AcceptedMsg(id=1, prompt_tok=1)
    assert refused == RefusedMsg(
        id=2, code="too_large", message="too much", need_tok=11, limit_tok=10
    )
    assert (unknown.id, unknown.code, unknown.path) == (3, "invalid", "model")


def test_a_second_request_of_one_id_breaks_the_wire(submit, engine):
    submit(1)
    with pytest.raises(RemoteProtocolError, match="1 is inside"):
        submit(1)
    assert engine.inside == [1]


def test_what_a_library_cannot_take_is_refused_and_not_quoted(
    desk, submit, engine, out, monkeypatch, capsys
):
    def broken(_):
        raise OverflowError("secret")

    monkeypatch.setattr(engine, "submit", broken)
    monkeypatch.setattr(engine, "count", broken)
    submit(1)
    desk.take(CountCall(call=2, model="m", prompt="x"))
    refused, failed = out.take()
    assert (refused.id, refused.code) == (1, "invalid")
    assert (failed.call, failed.code) == (2, "invalid")
    assert desk.exit_code is None
    said = capsys.readouterr().err + refused.message + failed.message
    assert "OverflowError" in said
    assert "secret" not in said


def test_there_is_no_backlog(submit, engine, out):
    for id in (1, 2, 3):
        submit(id)
    assert out.take()[-1].code == "unavailable"
    assert engine.inside == [1, 2]


def test_a_pool_that_is_not_loaded_takes_nothing(desk, submit, engine, out):
    engine.unload("m")
    submit(1)
    assert out.take()[0].code == "unavailable"


def test_one_message_a_step(desk, submit, engine, out):
    submit(1)
    out.take()
    outputs = [Output(id=1, chunk=EngineChunk(n_tok=1)) for _ in range(3)]
    engine.report = StepReport(outputs=outputs)
    desk.step()
    assert out.take() == [Step(n=1, outputs=outputs)]
    desk.step()
    assert out.take() == []
    assert desk.steps == 2


def test_an_abort_reaches_the_engine(desk, submit, out):
    submit(1)
    desk.take(Abort(id=1))
    desk.take(Abort(id=9))
    out.take()
    desk.step()
    assert out.take() == [Step(n=1, freed=[1])]


def test_raw_bytes_come_behind_the_step(desk, engine, out):
    engine.report = StepReport(freed=[5], raw=b"x")
    desk.step()
    assert out.take() == [Step(n=1, freed=[5]), b"x"]


def test_counting_and_embedding(desk, out):
    desk.take(CountCall(call=1, model="m", prompt="x"))
    desk.take(CountCall(call=2, model="m", prompt="bad"))
    desk.take(EmbedCall(call=3, model="m", input=["x"]))
    count, failed, embed = out.take()
    assert count == CountResult(call=1, n_tok=3, exact=True)
    assert failed == CallFailed(call=2, code="unsupported", message="cannot")
    assert (embed.call, embed.code) == (3, "unsupported")


def test_a_load_is_answered_when_the_pool_is_there(desk, engine, out):
    engine.unload("m")
    desk.take(LoadCall(call=1, model="m"))
    desk.take(LoadCall(call=2, model="m"))
    assert all(isinstance(message, PoolUpdate) for message in out.take())
    assert desk.busy
    desk.step()
    update, *answers = out.take()
    assert update.pool.state is PoolState.READY
    assert answers == [CallDone(call=1), CallDone(call=2)]
    assert desk.steps == 0


def test_loading_what_is_loaded_or_unknown_is_answered_at_once(desk, out):
    desk.take(LoadCall(call=1, model="m"))
    assert CallDone(call=1) in out.take()
    desk.take(LoadCall(call=2, model="other"))
    assert out.take()[0].code == "invalid"


def test_an_unload_waits_for_what_runs(desk, submit, engine, out):
    submit(1)
    desk.take(UnloadCall(call=7, model="m"))
    submit(2)
    assert out.take()[-1].code == "unavailable"
    desk.settle()
    assert out.take() == []
    desk.step()
    desk.settle()
    step, update, done = out.take()
    assert step.freed == [1]
    assert update.pool.state is PoolState.COLD
    assert done == CallDone(call=7)
    desk.take(UnloadCall(call=8, model="other"))
    assert out.take()[0].code == "invalid"


def test_a_failed_load_is_told_and_ends_the_host(desk, engine, out, capsys):
    engine.unload("m")
    desk.take(LoadCall(call=1, model="m"))
    out.take()

    def fail():
        engine._become(PoolState.FAILED, "no memory")
        raise LoadFailed("no memory")

    engine.step = fail
    desk.step()
    update, failed = out.take()
    assert (update.pool.state, update.pool.error) == (PoolState.FAILED, "no memory")
    assert failed == CallFailed(call=1, code="unavailable", message="no memory")
    assert desk.exit_code == 69
    assert capsys.readouterr().err == "no memory\n"


def test_an_engine_that_raises_is_broken(desk, engine, out, capsys):
    engine.broken = RuntimeError("cuda")
    desk.step()
    assert desk.exit_code == 70
    assert not desk.stepping
    assert "RuntimeError: cuda" in capsys.readouterr().err


def test_leaving_at_once_or_after_the_streams(desk, submit, engine, out):
    submit(1)
    desk.take(Exit(drain=True))
    submit(2)
    assert out.take()[-1].code == "unavailable"
    desk.settle()
    assert desk.exit_code is None
    engine.inside.clear()
    desk.settle()
    assert desk.exit_code == 0


def test_leaving_at_once(desk, submit):
    submit(1)
    desk.take(Exit())
    assert desk.exit_code == 0


def test_attached_twice(desk):
    with pytest.raises(RemoteProtocolError):
        desk.take(Attach(wire=1, daemon_pid=1))
