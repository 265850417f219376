"""What is said before anything is queued: no such model, no such ability, too much asked for."""

from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from onegate.config import ClassConfig
from onegate.engines.base import EngineCapacity, Feature, PoolInfo, PoolState, Reservation
from onegate.protocol import messages as m
from onegate.protocol.content import (
    ForcedTool,
    FunctionCall,
    FunctionSpec,
    Identity,
    ImagePart,
    Message,
    NamedFunction,
    Params,
    TextPart,
    Tool,
    ToolCall,
)
from onegate.protocol.errors import Reason
from onegate.server.checks import (
    check_bound,
    check_boundary,
    check_class,
    check_features,
    check_params,
    check_whole_prompt,
    find_pool,
    too_large,
)
from onegate.server.outcome import Ending, Outcome, RequestEnded

BARE = PoolInfo(
    model="tiny",
    state=PoolState.READY,
    capacity=EngineCapacity(max_seqs=1, max_context_tok=100, reservation=Reservation.GROW),
    params=frozenset({"max_tokens", "stop"}),
)
TOOL = Tool(function=FunctionSpec(name="add"))
IMAGE = ImagePart(data=b"x", media_type="image/png")


def ended(check: Any, *args: Any, **given: Any) -> Ending:
    with pytest.raises(RequestEnded) as error:
        check(*args, **given)
    assert error.value.ending.outcome is Outcome.REJECTED
    return error.value.ending


def ask(**fields: Any) -> m.Generate:
    return m.Generate(id=1, **({"prompt": "why?"} | fields))


def test_the_first_model_is_meant_where_none_is_named() -> None:
    other = msgspec.structs.replace(BARE, model="other")
    pools = {"tiny": BARE, "other": other}
    assert find_pool(pools, None) is BARE
    assert find_pool(pools, "other") is other


def test_a_wrong_model_names_the_right_ones() -> None:
    ending = ended(find_pool, {"tiny": BARE, "other": BARE}, "x" * 200)
    assert (ending.reason, ending.models) == (Reason.WRONG_MODEL, ("tiny", "other"))
    assert "tiny, other" in ending.message
    assert "x" * 81 not in ending.message


@pytest.mark.parametrize("asked", [None, "tiny"])
def test_no_model_is_known_yet(asked: str | None) -> None:
    ending = ended(find_pool, {}, asked)
    assert (ending.reason, ending.can_retry) == (Reason.ENGINE_UNAVAILABLE, True)


@pytest.mark.parametrize(
    ("path", "feature", "fields"),
    [
        ("tools", Feature.TOOLS, {"tools": [TOOL]}),
        ("tool_choice", Feature.TOOLS, {"tool_choice": "required"}),
        (
            "tool_choice",
            Feature.TOOLS,
            {"tool_choice": ForcedTool(function=NamedFunction(name="add"))},
        ),
        ("think", Feature.THINKING, {"think": "high"}),
        ("think", Feature.THINKING, {"think": True}),
        ("suffix", Feature.SUFFIX, {"suffix": ""}),
        ("prompt_token_ids", Feature.TOKEN_IDS, {"prompt": None, "prompt_token_ids": [1]}),
        (
            "messages[1].content[1]",
            Feature.IMAGES,
            {
                "prompt": None,
                "messages": [
                    Message(role="user", content="hm"),
                    Message(role="user", content=[TextPart(text="hm"), IMAGE]),
                ],
            },
        ),
    ],
)
def test_a_pool_is_asked_for_what_it_has(
    path: str, feature: Feature, fields: dict[str, Any]
) -> None:
    ending = ended(check_features, ask(**fields), BARE)
    assert (ending.reason, ending.path) == (Reason.UNSUPPORTED, path)
    assert "tiny" in ending.message
    check_features(ask(**fields), msgspec.structs.replace(BARE, features=frozenset({feature})))


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"think": True}, "think"),
        ({"prompt": None, "messages": [Message(role="user", content=[IMAGE])]}, "the images"),
    ],
)
def test_what_a_pool_has_not_is_to_be_left_out(fields: dict[str, Any], what: str) -> None:
    assert ended(check_features, ask(**fields), BARE).message.endswith(f"leave out {what}")


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_choice": "none"},
        {"tool_choice": "auto"},
        {"think": False},
        {"messages": [Message(role="user", content=[TextPart(text="hm")])], "prompt": None},
        {"messages": [Message(role="user", content="hm")], "prompt": None},
    ],
)
def test_what_every_pool_can_do(fields: dict[str, Any]) -> None:
    check_features(ask(**fields), BARE)


VALUES: dict[str, Any] = {
    "ignore_eos": False,
    "response_format": None,
    "logprobs": False,
    "stop": [],
}


@pytest.mark.parametrize("name", sorted(set(Params.__struct_fields__) - BARE.params))
def test_a_parameter_is_honoured_or_refused(name: str) -> None:
    params = Params(**{name: VALUES.get(name, 1)})
    ending = ended(check_params, params, BARE)
    assert (ending.reason, ending.path) == (Reason.UNSUPPORTED, f"params.{name}")
    assert "max_tokens, stop" in ending.message
    honours = msgspec.structs.replace(BARE, params=frozenset({name}))
    check_params(params, honours)


def test_parameters_that_are_honoured_pass() -> None:
    check_params(Params(max_tokens=1, stop=["x"]), BARE)
    check_params(Params(), BARE)


LOOP = ClassConfig(name="loop", rank=1, max_tokens_max=8)


@pytest.mark.parametrize(
    ("path", "limit", "within", "beyond"),
    [
        (
            "params.max_tokens",
            8,
            {"params": Params(max_tokens=8)},
            {"params": Params(max_tokens=9)},
        ),
        ("ttft_timeout_ms", 600_000, {"ttft_timeout_ms": 600_000}, {"ttft_timeout_ms": 600_001}),
        ("timeout_ms", 2_700_000, {"timeout_ms": 2_700_000}, {"timeout_ms": 2_700_001}),
    ],
)
def test_a_class_has_maxima(
    path: str, limit: int, within: dict[str, Any], beyond: dict[str, Any]
) -> None:
    check_class(ask(**within), LOOP)
    ending = ended(check_class, ask(**beyond), LOOP)
    assert (ending.reason, ending.path) == (Reason.INVALID, path)
    assert (ending.limit, ending.used) == (limit, limit + 1)
    assert "loop" in ending.message


def test_what_is_not_asked_for_or_not_bounded_passes() -> None:
    assert ask().params.max_tokens is UNSET
    check_class(ask(), LOOP)
    check_bound(10**9, None, "timeout_ms", "batch")


def test_too_large_says_both_numbers() -> None:
    ending = too_large(5000, 4096).ending
    assert (ending.reason, ending.used, ending.limit) == (Reason.TOO_LARGE, 5000, 4096)
    assert "5000" in ending.message
    assert "4096" in ending.message


CALLS = [ToolCall(id="c1", function=FunctionCall(name="add", arguments="{}"))]


@pytest.mark.parametrize(
    ("path", "feature", "turn"),
    [
        ("tool_calls", Feature.TOOLS, Message(role="assistant", tool_calls=CALLS)),
        ("role", Feature.TOOLS, Message(role="tool", content="3", tool_call_id="c1")),
        ("thinking", Feature.THINKING, Message(role="assistant", content="a", thinking="hm")),
    ],
)
def test_a_history_that_the_template_cannot_say_is_refused(
    path: str, feature: Feature, turn: Message
) -> None:
    message = ask(prompt=None, messages=[Message(role="user", content="hm"), turn])
    ending = ended(check_features, message, BARE)
    assert (ending.reason, ending.path) == (Reason.UNSUPPORTED, f"messages[1].{path}")
    check_features(message, msgspec.structs.replace(BARE, features=frozenset({feature})))


KEPT = ClassConfig(name="kept", rank=5, refuse_on=("boundary",))


def placed(boundary: Any, state: PoolState = PoolState.READY) -> PoolInfo:
    identity = Identity(engine="e", model="tiny", boundary=boundary) if boundary else None
    return msgspec.structs.replace(BARE, identity=identity, state=state)


@pytest.mark.parametrize("boundary", ["remote", "unknown", None])
def test_text_that_is_to_stay_here_goes_to_no_engine_that_may_send_it_on(boundary: Any) -> None:
    ending = ended(check_boundary, placed(boundary), KEPT)
    assert (ending.reason, ending.can_retry) == (Reason.BOUNDARY_REFUSED, False)
    assert (boundary or "unknown") in ending.message
    check_boundary(placed(boundary), msgspec.structs.replace(KEPT, refuse_on=()))


def test_a_local_engine_is_asked_and_one_that_loads_is_waited_for() -> None:
    check_boundary(placed("local"), KEPT)
    check_boundary(placed(None, PoolState.LOADING), KEPT)
    assert ended(check_boundary, placed("remote", PoolState.LOADING), KEPT)


WHOLE = ClassConfig(name="whole", rank=5, refuse_on=("truncated",))


def test_a_class_that_wants_all_of_its_prompt_read_asks_no_engine_that_may_cut_it() -> None:
    pool = placed("local")
    ending = ended(check_whole_prompt, pool, WHOLE, surely_fits=False)
    assert (ending.reason, ending.can_retry) == (Reason.DEGRADED_REFUSED, False)
    assert "cut" in ending.message
    check_whole_prompt(pool, WHOLE, surely_fits=True)
    check_whole_prompt(pool, KEPT, surely_fits=False)
    honest = msgspec.structs.replace(pool, features=frozenset({Feature.WHOLE_PROMPTS}))
    check_whole_prompt(honest, WHOLE, surely_fits=False)


def test_what_an_engine_that_loads_does_with_prompts_is_waited_for() -> None:
    check_whole_prompt(placed(None, PoolState.LOADING), WHOLE, surely_fits=False)
    assert ended(check_whole_prompt, placed(None), WHOLE, surely_fits=False)
    assert ended(check_whole_prompt, placed("local", PoolState.COLD), WHOLE, surely_fits=False)
