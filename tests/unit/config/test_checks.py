"""Keys that contradict each other, and keys that waste each other."""

import pytest

from onegate.config import ConfigError, PoolFacts, check, warnings
from onegate.config.engine import HOST_SOCKET_PATH


def problems(text: str) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        check(text)
    return {problem.path: problem.message for problem in caught.value.errors}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("engine.context_tok = 99999", "engine.context_tok"),
        ("engine.restart_backoff_ms = 70000", "engine.restart_backoff_ms"),
        ("gate.sessions_per_uid = 2000", "gate.sessions_per_uid"),
        ("gate.inbound_bytes = 10485760", "gate.inbound_bytes_per_principal"),
        ("gate.max_frame_bytes = 104857600", "gate.max_frame_bytes"),
        ("gate.write_buffer_max_bytes = 2048", "gate.write_high_water_bytes"),
        ("gate.max_queued_tok = 100", "gate.floor_quantum_tok"),
        ("gate.socket_mode = 0o611", "gate.socket_mode"),
        ("gate.look_ahead = 1", "gate.look_ahead"),
        ('engine.prefix_cache_scope = "principal"', "engine.prefix_cache_scope"),
        ('engine.host_socket = "run/host.sock"', "engine.host_socket"),
        (f'engine.host_socket = "/{"x" * 107}"', "engine.host_socket"),
    ],
)
def test_limits_that_could_never_be_reached(text: str, path: str) -> None:
    assert set(problems(text)) == {path}


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ("max_tokens_default = 9000", "max_tokens_default"),
        ("max_tokens_max = 1000", "max_tokens_default"),
        ("ttft_timeout_ms = 130000", "ttft_timeout_ms"),
        ('ttft_timeout_ms = "none"', "ttft_timeout_ms"),
        ("timeout_ms = 1000000", "timeout_ms"),
        ("timeout_ms = 5000", "ttft_timeout_ms"),
    ],
)
def test_a_default_is_within_its_maximum(keys: str, path: str) -> None:
    found = problems(f'[[class]]\nname = "interactive"\n{keys}\n')
    assert set(found) == {f"class.interactive.{path}"}


def test_an_engine_with_a_queue_of_its_own_may_be_sent_more_than_its_seats() -> None:
    assert check('gate.look_ahead = 1\nengine.kind = "tensorrt-llm"').gate.look_ahead == 1


@pytest.mark.parametrize(
    "more", ["prefix_cache = false", 'kind = "tensorrt-llm"', 'kind = "scripted"']
)
def test_a_prefix_cache_that_is_not_there_or_can_separate_may_be_asked_to(more: str) -> None:
    assert check(f'[engine]\nprefix_cache_scope = "principal"\n{more}')


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ("max_seqs = 256", "engine.max_step_tok"),
        ("[engine.tensorrt_llm]\nkv_tok = 4095", "engine.context_tok"),
    ],
)
def test_what_tensorrt_llm_could_never_run(keys: str, path: str) -> None:
    text = '[engine]\nkind = "tensorrt-llm"\nmodel = "/m"\n'
    assert set(problems(text + keys)) == {path}
    assert check(text + "context_tok = 100000\nmax_seqs = 255")  # its cache is as large as it is


def test_no_first_token_timeout_is_needed_below_a_timeout() -> None:
    keys = 'timeout_ms = 5000\nttft_timeout_ms = "none"\nttft_timeout_ms_max = "none"'
    assert check(f'[[class]]\nname = "loop"\n{keys}\n').classes[1].ttft_timeout_ms is None


def test_ranks_are_unique() -> None:
    found = problems('[[class]]\nname = "loop"\nrank = 0\n')
    assert list(found.values()) == ['0 is already the rank of "interactive"']


def test_floor_shares_leave_something() -> None:
    text = (
        '[[class]]\nname = "loop"\nfloor_share = {}\n[[class]]\nname = "batch"\nfloor_share = 0.5'
    )
    assert "add up to 1;" in problems(text.format(0.5))["class"]
    check(text.format(0.49))


def test_scripted_pools_are_checked_instead_of_the_engines_own_numbers() -> None:
    scripted = '[engine]\nkind = "scripted"\ncontext_tok = 99999\n'
    check(scripted)
    pool = '[[engine.scripted.pools]]\nmodel = "a"\n'
    at = "engine.scripted.pools"
    assert set(problems(scripted + pool + pool)) == {f"{at}[1].model"}
    assert set(problems(scripted + pool + "context_tok = 99999\n")) == {f"{at}[0].context_tok"}
    check(scripted + pool + 'context_tok = 99999\nreservation = "per_slot"\n')
    assert set(problems(scripted + "[engine.scripted]\npools = []\n")) == {at}


def test_the_defaults_have_no_warnings() -> None:
    assert warnings(check("")) == []


def test_warnings_from_the_file_alone() -> None:
    found = warnings(
        check(
            "[engine]\ncontext_tok = 20000\n[gate]\nmax_in_flight = 8\nmax_queued_tok = 50000\n"
            '[[class]]\nname = "loop"\nmax_queued_tok = 9000\nsafety_timeout_s = 60\n'
        )
    )
    assert {w.path for w in found} == {
        "gate.max_in_flight",
        "class.interactive.per_principal_share",
        "class.loop.max_queued_tok",
        "class.loop.safety_timeout_s",
        "class.batch.max_queued_tok",
    }


def test_warnings_from_what_the_engine_turned_out_to_be() -> None:
    pools = (PoolFacts("big", max_context_tok=131072, max_seqs=128), PoolFacts("odd", None, None))
    found = {w.path: w.message for w in warnings(check(""), pools)}
    assert '128 seats of "big"' in found["gate.max_in_flight"]
    assert "131072" in found["class.interactive.max_queued_tok"]
    assert "class.batch.max_queued_tok" not in found


def test_a_server_that_is_not_ours_is_not_judged_by_the_file() -> None:
    assert warnings(check('[engine]\nkind = "openai"\nmax_seqs = 500\n')) == []


OLLAMA = '[engine]\nkind = "ollama"\n'


def test_an_ollama_needs_models_each_of_them_once() -> None:
    assert "ollama list" in problems(OLLAMA)["engine.ollama.models"]
    models = '[[engine.ollama.models]]\nmodel = "a"\n[[engine.ollama.models]]\nmodel = "b"\n'
    assert len(check(OLLAMA + models).engine.ollama.models) == 2
    for again in ("a", "A", "a:latest", "A:Latest"):
        text = f'{OLLAMA}{models}[[engine.ollama.models]]\nmodel = "{again}"\n'
        assert "already" in problems(text)["engine.ollama.models[2].model"]


def test_an_ollama_of_somebody_elses_is_not_spoken_to_unasked() -> None:
    far = '[engine.ollama]\nbase_url = "http://192.0.2.1:11434"\nmodels = [{model = "a"}]\n'
    assert set(problems(OLLAMA + far)) == {"engine.ollama.base_url"}
    assert check(f"{OLLAMA}allow_remote = true\n{far}").engine.allow_remote


def test_an_ollamas_seats_and_contexts_are_judged_by_the_file() -> None:
    text = f'{OLLAMA}[[engine.ollama.models]]\nmodel = "s"\nmax_seqs = 99\n'
    assert ['99 seats of "s"' in w.message for w in warnings(check(text))] == [True]


def test_warnings_look_at_scripted_pools() -> None:
    text = '[engine]\nkind = "scripted"\n[[engine.scripted.pools]]\nmodel = "s"\nmax_seqs = 99\n'
    assert ['99 seats of "s"' in w.message for w in warnings(check(text))] == [True]


def test_an_interpreter_that_nobody_starts_is_told() -> None:
    text = '[engine]\nhost_socket = "/run/h.sock"\n'
    assert not warnings(check(text))
    (found,) = warnings(check(f'{text}python = "/opt/venv/bin/python"'))
    assert found.path == "engine.python"
    # The service that install.sh makes gets it.
    assert not warnings(check(f'{text}python = "/p"'.replace("/run/h.sock", HOST_SOCKET_PATH)))
    assert not warnings(check('[engine]\npython = "/opt/venv/bin/python"'))


def test_a_socket_of_a_host_as_long_as_can_be() -> None:
    assert check(f'engine.host_socket = "/{"x" * 106}"')


def a_class(name: str, keys: str) -> str:
    return f'[[class]]\nname = "{name}"\n{keys}\n'


@pytest.mark.parametrize(
    ("value", "path", "why"),
    [
        ('["22:00-06:00", "so 1:00-2:00"]', "run_window[1]", "is no day"),
        ('["06:00-06:00"]', "run_window[0]", "begins when it ends"),
        ('"22:00-06:00"', "run_window", "expected an array of times"),
        ("[7]", "run_window", "expected an array of times"),
        (str(["0:00-1:00"] * 17).replace("'", '"'), "run_window", "at most 16"),
    ],
)
def test_times_that_are_none(value: str, path: str, why: str) -> None:
    found = problems(a_class("batch", f"run_window = {value}"))
    assert set(found) == {f"class.batch.{path}"}
    assert why in found[f"class.batch.{path}"]


def test_times_that_are() -> None:
    text = a_class("batch", 'run_window = ["22:00-06:00", "sat,sun 00:00-24:00"]')
    assert check(text).classes[2].run_window == ("22:00-06:00", "sat,sun 00:00-24:00")


def cautions(text: str) -> set[str]:
    return {found.path for found in warnings(check(text))}


def test_whoever_may_stop_others_needs_some() -> None:
    nobody = a_class("loop", "preemptible = false") + a_class("batch", "preemptible = false")
    assert cautions(nobody) == {"class.interactive.preempt", "class.loop.preempt"}
    assert cautions(a_class("loop", "preemptible = false")) == set()
    assert cautions(a_class("batch", 'preempt = "lower_rank"')) == {"class.batch.preempt"}
    # A better one that is preemptible is of no use.
    better = a_class("batch", "preemptible = false")
    assert cautions(better) == {"class.loop.preempt"}


@pytest.mark.parametrize("key", ["behaviour_live", "behaviour_starts_per_min"])
def test_what_speaks_of_lower_classes_needs_one(key: str) -> None:
    assert cautions(a_class("batch", f"{key} = 50")) == {f"class.batch.{key}"}
    assert cautions(a_class("loop", f"{key} = 50")) == set()


def test_a_ration_below_one_answer_is_told() -> None:
    assert cautions(a_class("batch", "daily_tok = 1023")) == {"class.batch.daily_tok"}
    assert cautions(a_class("batch", "daily_tok = 1024")) == set()
