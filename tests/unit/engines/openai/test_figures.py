from tests.unit.engines.openai.fakes import TableLink

from onegate.engines.base import EngineBroke
from onegate.engines.http.link import HttpStatus
from onegate.engines.openai.figures import Figures, figures, takes_priority
from onegate.engines.openai.flavours import LLAMA, NONE, TRTLLM, VLLM


async def test_of_a_llama_server():
    slots = [{"is_processing": True, "id_task": 7}, {"is_processing": False, "id_task": 5}]
    link = TableLink(slots=slots, metrics="llamacpp:requests_deferred 4\n")
    found = await figures(link, LLAMA, ["m"])
    assert (found.of["m"].seats_used, found.of["m"].waiting) == (1, 4)
    assert found.tasks == {7}
    assert (await figures(TableLink(slots=slots), LLAMA, ["m"])).of["m"].waiting is None
    assert await figures(TableLink(), LLAMA, ["m"]) == Figures()
    nameless = TableLink(slots=[{"is_processing": True}])
    assert (await figures(nameless, LLAMA, ["m"])).tasks is None


async def test_of_a_vllm():
    text = 'vllm:num_requests_running{model_name="m"} 2.0\n' * 2
    assert (await figures(TableLink(metrics=text), VLLM, ["m"])).of["m"].seats_used == 4
    assert await figures(TableLink(), NONE, ["m"]) == Figures()


async def test_figures_that_hold_several_models_are_nobodys():
    text = 'vllm:num_requests_running{model_name="m"} 2.0\n'
    assert await figures(TableLink(metrics=text), VLLM, ["m", "adapter"]) == Figures()
    slots = TableLink(slots=[{"is_processing": True}])
    assert await figures(slots, LLAMA, ["m", "n"]) == Figures()


async def test_a_priority_counts_only_where_it_was_taken():
    yes = TableLink(v1__completions={})
    assert await takes_priority(yes, VLLM, "m") is True
    assert yes.asked[0][1]["priority"] == 1
    assert await takes_priority(yes, TRTLLM, "m") is True
    assert yes.asked[1][1]["priority"] == 0.5
    assert await takes_priority(TableLink(), VLLM, "m") is False
    assert await takes_priority(yes, LLAMA, "m") is False


async def test_a_server_that_is_too_busy_to_say_has_not_said_no():
    for busy in (HttpStatus(503, b"", None), HttpStatus(429, b"", None), EngineBroke("late")):
        assert await takes_priority(TableLink(v1__completions=busy), VLLM, "m") is None
