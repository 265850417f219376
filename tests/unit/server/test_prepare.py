"""From what a client asks to what the core and the engine are given."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from onegate.admission.model import Resume
from onegate.config import ClassConfig
from onegate.engines.base import EngineCapacity, Feature, PoolInfo, PoolState, Reservation
from onegate.protocol import messages as m
from onegate.protocol.content import (
    FunctionSpec,
    ImagePart,
    Message,
    Params,
    ResponseFormat,
    Tool,
)
from onegate.protocol.errors import Reason
from onegate.server.live import LiveRequest, Mute
from onegate.server.outcome import Ending, RequestEnded
from onegate.server.prepare import (
    Plan,
    default_max_tok,
    plan_generate,
    plan_lease,
    resumes_exactly,
    with_count,
)
from onegate.server.sizes import PromptSizes

MS = 1_000_000
POOL = PoolInfo(
    model="tiny",
    state=PoolState.READY,
    capacity=EngineCapacity(
        max_seqs=1, max_context_tok=1000, reservation=Reservation.GROW, max_bytes_per_tok=10
    ),
    features=frozenset(Feature),
    params=frozenset(Params.__struct_fields__),
)
NO_FEATURES = msgspec.structs.replace(POOL, features=frozenset())
LOOP = ClassConfig(name="loop", rank=1, max_tokens_default=50, max_tokens_max=400)


def with_capacity(**fields: Any) -> PoolInfo:
    capacity = msgspec.structs.replace(POOL.capacity, **fields)
    return msgspec.structs.replace(POOL, capacity=capacity)


def live() -> LiveRequest:
    client = Mute(principal="uid:1", uid=1)
    return LiveRequest(client=client, id=3, serial=77, rid="b-77", verb="generate", arrived_ns=500)


def plan(
    pool: PoolInfo = POOL,
    spec_class: ClassConfig = LOOP,
    asked_class: ClassConfig | None = None,
    **fields: Any,
) -> Plan:
    message = m.Generate(id=3, **({"prompt": "x" * 300} | fields))
    return plan_generate(
        message,
        live(),
        pool=pool,
        spec_class=spec_class,
        asked_class=asked_class or spec_class,
        flow="f",
        sizes=PromptSizes(),
    )


def refused(**fields: Any) -> Ending:
    with pytest.raises(RequestEnded) as error:
        plan(**fields)
    return error.value.ending


def test_the_core_gets_what_it_decides_on() -> None:
    spec = plan(params=Params(max_tokens=20)).spec
    assert (spec.rid, spec.pool, spec.class_) == (77, "tiny", "loop")
    assert (spec.principal, spec.flow, spec.arrived_ns) == ("uid:1", "f", 500)
    assert (spec.prompt_tok, spec.max_tok, spec.counted) == (100 + 16, 20, False)
    assert spec.lease is False


def test_a_model_that_cannot_be_served_is_not_refused_for_what_it_cannot_do() -> None:
    # It has never said what it can do.
    failed = msgspec.structs.replace(
        NO_FEATURES, params=frozenset(), state=PoolState.FAILED, identity=None
    )
    ending = refused(pool=failed, params=Params(max_tokens=20))
    assert ending.reason is Reason.ENGINE_UNAVAILABLE
    assert ending.message == "the engine cannot serve model tiny now"


def test_the_engine_gets_what_it_runs() -> None:
    tools = [Tool(function=FunctionSpec(name="add"))]
    planned = plan(
        prompt=None,
        messages=[Message(role="user", content="why?")],
        tools=tools,
        tool_choice="required",
        think=True,
        params=Params(max_tokens=20, temperature=0.5),
    )
    request = planned.request
    assert (request.model, request.rank, request.cache_salt) == ("tiny", 1, "uid:1")
    assert request.prompt is None
    assert request.messages == [Message(role="user", content="why?")]
    assert (request.tools, request.tool_choice, request.think) == (tools, "required", True)
    assert (request.max_tokens, request.fit_max_tokens) == (20, False)
    assert request.params.temperature == 0.5
    raw = plan(prompt="a", suffix="b", raw=True).request
    assert (raw.prompt, raw.suffix, raw.raw) == ("a", "b", True)


def test_a_class_has_default_deadlines() -> None:
    spec = plan().spec
    assert spec.ttft_deadline_ns == 500 + 60_000 * MS
    assert spec.deadline_ns == 500 + 1_800_000 * MS
    assert spec.ttft_is_own is False


def test_ones_own_deadlines_come_first() -> None:
    spec = plan(ttft_timeout_ms=5, timeout_ms=9).spec
    assert (spec.ttft_deadline_ns, spec.deadline_ns) == (500 + 5 * MS, 500 + 9 * MS)
    assert spec.ttft_is_own is True


def test_a_class_may_have_no_deadline() -> None:
    patient = msgspec.structs.replace(LOOP, ttft_timeout_ms=None, timeout_ms=None)
    spec = plan(spec_class=patient).spec
    assert (spec.ttft_deadline_ns, spec.deadline_ns) == (None, None)


def test_without_a_maximum_the_rest_of_the_context_is_meant() -> None:
    planned = plan(prompt="x" * 2100)
    assert planned.spec.prompt_tok == 716
    assert planned.request.max_tokens == planned.spec.max_tok == 1000 - 716
    assert planned.request.fit_max_tokens is True
    assert planned.spec.likely_tok == LOOP.max_tokens_default
    assert plan(params=Params(max_tokens=10)).spec.likely_tok is None


def test_the_rest_of_the_context_is_bounded_by_the_class() -> None:
    assert default_max_tok(POOL, LOOP, 100) == 400
    assert default_max_tok(with_capacity(reservation=Reservation.PER_SLOT), LOOP, 100) == 400
    assert default_max_tok(POOL, LOOP, 999) == default_max_tok(POOL, LOOP, 5000) == 1


def test_where_all_is_reserved_the_default_is_smaller() -> None:
    full = with_capacity(reservation=Reservation.FULL)
    assert default_max_tok(full, LOOP, 100) == 50
    assert default_max_tok(full, LOOP, 980) == 20


def test_too_large_where_bytes_prove_it() -> None:
    ending = refused(prompt="x" * 10_000)
    assert (ending.reason, ending.used, ending.limit) == (Reason.TOO_LARGE, 1001, 1000)
    ending = refused(prompt="x" * 6000, params=Params(max_tokens=401), spec_class=WIDE)
    assert (ending.used, ending.limit) == (1001, 1000)
    plan(prompt="x" * 6000, params=Params(max_tokens=400))


WIDE = msgspec.structs.replace(LOOP, max_tokens_max=1000)


def test_what_a_template_may_leave_out_proves_nothing() -> None:
    messages = [
        Message(role="assistant", content="hm", thinking="x" * 20_000),
        Message(role="user", content="why?"),
    ]
    planned = plan(prompt=None, messages=messages)
    assert planned.must_count
    assert planned.spec.prompt_tok == 999


def test_an_estimate_alone_refuses_nothing() -> None:
    planned = plan(prompt="x" * 9000, params=Params(max_tokens=100))
    assert planned.spec.prompt_tok == 900
    assert planned.must_count


def test_a_vocabulary_that_is_not_known_proves_nothing() -> None:
    assert plan(pool=with_capacity(max_bytes_per_tok=None), prompt="x" * 50_000).must_count


@pytest.mark.parametrize(
    ("counts", "fields"),
    [
        (True, {"prompt": "x" * 1000}),
        (False, {"prompt": "x" * 300}),
        (False, {"prompt": None, "prompt_token_ids": [1] * 999}),
        (
            False,
            {"prompt": "x" * 1000, "pool": msgspec.structs.replace(POOL, features=frozenset())},
        ),
        (
            False,
            {"prompt": "x" * 1000, "pool": msgspec.structs.replace(POOL, state=PoolState.COLD)},
        ),
    ],
)
def test_only_what_may_not_fit_is_counted_first(counts: bool, fields: dict[str, Any]) -> None:
    assert plan(**fields).must_count is counts


def test_token_ids_are_counted_already() -> None:
    planned = plan(prompt=None, prompt_token_ids=[7] * 30)
    assert planned.request.prompt_tok_ids == [7] * 30
    assert (planned.spec.prompt_tok, planned.spec.counted) == (30, True)
    assert refused(prompt=None, prompt_token_ids=[7] * 1000).reason is Reason.TOO_LARGE


def test_images_are_memory() -> None:
    image = ImagePart(data=b"x" * 50_000, media_type="image/png")
    planned = plan(prompt=None, messages=[Message(role="user", content=[image])])
    assert planned.held_bytes > 50_000
    assert planned.n_bytes == 0
    assert (planned.n_messages, planned.spec.prompt_tok) == (1, 16)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("params.max_tokens", {"params": Params(max_tokens=401)}),
        ("timeout_ms", {"timeout_ms": 2_700_001}),
        ("params.seed", {"params": Params(seed=1), "pool": "without"}),
        ("suffix", {"suffix": "b", "pool": "without"}),
    ],
)
def test_pool_and_class_are_asked(path: str, fields: dict[str, Any]) -> None:
    if fields.get("pool") == "without":
        bare = msgspec.structs.replace(POOL, features=frozenset(), params=frozenset())
        fields = fields | {"pool": bare}
    assert refused(**fields).path == path


# --- after the engine has counted -----------------------------------------------------------------


def test_a_count_replaces_the_estimate() -> None:
    planned = with_count(plan(prompt="x" * 2000), 300, LOOP)
    assert (planned.spec.prompt_tok, planned.spec.counted) == (300, True)
    assert planned.spec.max_tok == planned.request.max_tokens == 400
    asked = with_count(plan(prompt="x" * 2000, params=Params(max_tokens=9)), 300, LOOP)
    assert asked.spec.max_tok == asked.request.max_tokens == 9


def test_a_count_may_be_too_large() -> None:
    with_count(plan(prompt="x" * 2000), 999, LOOP)
    with pytest.raises(RequestEnded) as error:
        with_count(plan(prompt="x" * 2000), 1000, LOOP)
    assert (error.value.ending.used, error.value.ending.limit) == (1001, 1000)
    asked = plan(prompt="x" * 2000, params=Params(max_tokens=400))
    with_count(asked, 600, LOOP)
    with pytest.raises(RequestEnded):
        with_count(asked, 601, LOOP)


# --- resuming -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        Params(),
        Params(temperature=0.0, seed=3, top_p=0.5, stop=["x"], ignore_eos=True),
        Params(presence_penalty=0.0, frequency_penalty=0.0, repeat_penalty=1.0, logprobs=False),
    ],
)
def test_greedy_decoding_can_be_continued(params: Params) -> None:
    assert resumes_exactly(params, frozenset({Feature.RESUME_EXACT}))
    assert plan(params=params).spec.resume is Resume.EXACT
    without = msgspec.structs.replace(POOL, features=frozenset(Feature) - {Feature.RESUME_EXACT})
    assert plan(params=params, pool=without).spec.resume is Resume.UNSEEN


@pytest.mark.parametrize(
    "params",
    [
        Params(temperature=0.1),
        Params(min_tokens=1),
        Params(presence_penalty=0.1),
        Params(frequency_penalty=-0.1),
        Params(repeat_penalty=1.1),
        Params(logprobs=True),
    ],
)
def test_what_cannot_be_continued_exactly(params: Params) -> None:
    assert not resumes_exactly(params, frozenset(Feature))
    assert plan(params=params).spec.resume is Resume.UNSEEN
    assert plan(params=params, stream=False).spec.resume is Resume.RESTART


def test_an_answer_of_a_given_form_is_continued_where_its_grammar_is() -> None:
    params = Params(response_format=ResponseFormat(type="json_object"))
    assert plan(params=params).spec.resume is Resume.EXACT
    without = msgspec.structs.replace(POOL, features=frozenset(Feature) - {Feature.RESUME_GUIDED})
    assert plan(params=params, pool=without).spec.resume is Resume.UNSEEN
    assert plan(params=params, pool=without, stream=False).spec.resume is Resume.RESTART
    sampled = msgspec.structs.replace(params, temperature=0.5)
    assert plan(params=sampled).spec.resume is Resume.UNSEEN
    free = Params(response_format=ResponseFormat(type="text"))
    assert plan(params=free, pool=without).spec.resume is Resume.EXACT


def test_what_an_engine_cannot_abort_is_never_stopped() -> None:
    without = msgspec.structs.replace(POOL, features=frozenset(Feature) - {Feature.ABORT})
    assert plan(pool=without).spec.resume is Resume.NEVER


def test_a_ticket_goes_with_what_it_is_held_against() -> None:
    spec = plan(prompt="x" * 300, ticket="t").spec
    assert (spec.ticket, spec.prompt_bytes) == ("t", 300)


# --- one that is treated as a lower class ---------------------------------------------------------


def lower(**fields: Any) -> ClassConfig:
    return msgspec.structs.replace(LOOP, name="batch", rank=2, **fields)


def test_a_lowered_request_has_the_order_and_the_deadlines_of_its_new_class() -> None:
    planned = plan(spec_class=lower(ttft_timeout_ms=7, timeout_ms=8), asked_class=LOOP)
    spec = planned.spec
    assert (spec.class_, planned.request.rank) == ("batch", 2)
    assert (spec.ttft_deadline_ns, spec.deadline_ns) == (500 + 7 * MS, 500 + 8 * MS)


def test_a_lowered_request_may_ask_for_what_its_own_class_allows() -> None:
    narrow = lower(max_tokens_max=3, ttft_timeout_ms_max=4)
    wide = msgspec.structs.replace(LOOP, max_tokens_max=300)
    asked = {"params": Params(max_tokens=300), "ttft_timeout_ms": 60_000}
    assert plan(spec_class=narrow, asked_class=wide, **asked).spec.max_tok == 300
    assert plan(spec_class=narrow, asked_class=wide).spec.max_tok == 300
    with pytest.raises(RequestEnded, match="class loop allows at most 300"):
        plan(spec_class=lower(), asked_class=wide, params=Params(max_tokens=301))
    spec = lease(spec_class=narrow, asked_class=LOOP, ttft_timeout_ms=60_000)
    assert (spec.class_, spec.max_tok) == ("batch", 400)


# --- leases ---------------------------------------------------------------------------------------


def lease(spec_class: ClassConfig = LOOP, asked_class: ClassConfig = LOOP, **fields: Any) -> Any:
    message = m.Lease(id=3, **({"prompt_tok": 600, "max_tok": 400} | fields))
    return plan_lease(
        message, live(), pool=POOL, spec_class=spec_class, asked_class=asked_class, flow="f"
    )


def test_a_lease_is_counted_and_shows_no_tokens() -> None:
    spec = lease()
    assert (spec.rid, spec.prompt_tok, spec.max_tok) == (77, 600, 400)
    assert (spec.lease, spec.counted, spec.deadline_ns) == (True, True, None)
    assert spec.ttft_deadline_ns == 500 + 60_000 * MS
    assert lease(ttft_timeout_ms=5).ttft_deadline_ns == 500 + 5 * MS
    assert replace(spec, rid=1).rid == 1


@pytest.mark.parametrize(
    ("reason", "path", "fields"),
    [
        (Reason.INVALID, "max_tok", {"max_tok": 401, "prompt_tok": 1}),
        (Reason.INVALID, "ttft_timeout_ms", {"ttft_timeout_ms": 600_001}),
        (Reason.TOO_LARGE, None, {"prompt_tok": 601}),
    ],
)
def test_a_lease_has_bounds(reason: Reason, path: str | None, fields: dict[str, Any]) -> None:
    with pytest.raises(RequestEnded) as error:
        lease(**fields)
    assert (error.value.ending.reason, error.value.ending.path) == (reason, path)


def test_text_that_is_to_stay_here_is_refused_before_it_queues() -> None:
    kept = ClassConfig(name="kept", rank=5, refuse_on=("boundary",))
    assert refused(asked_class=kept).reason is Reason.BOUNDARY_REFUSED


def test_a_lease_is_for_text_that_stays_here_where_its_class_says_so() -> None:
    careful = msgspec.structs.replace(LOOP, refuse_on=("boundary",))
    with pytest.raises(RequestEnded) as error:
        lease(asked_class=careful)
    assert error.value.ending.reason is Reason.BOUNDARY_REFUSED


def test_a_prompt_that_may_be_cut_is_refused_before_it_queues() -> None:
    whole = ClassConfig(name="whole", rank=5, refuse_on=("truncated",))
    cuts = msgspec.structs.replace(POOL, features=frozenset(Feature) - {Feature.WHOLE_PROMPTS})
    # A byte can be a token, and the template has its own: 64 for one turn.
    short = {"prompt": "x" * 100, "params": Params(max_tokens=20)}
    assert plan(asked_class=whole, pool=cuts, **short).surely_fits
    for asked in (
        {"prompt": "x" * 950, "params": Params(max_tokens=20)},
        {"prompt": "x" * 600, "params": Params(max_tokens=400)},
        {"prompt": "x" * 700},  # the answer may be as long as the class lets it
    ):
        assert not plan(asked_class=LOOP, pool=cuts, **asked).surely_fits
        plan(asked_class=whole, **asked)
        ending = refused(asked_class=whole, pool=cuts, **asked)
        assert ending.reason is Reason.DEGRADED_REFUSED
