"""An Ollama's defaults are Ollama's own."""

from onegate.config.ollama import OllamaConfig, OllamaModel


def test_it_is_where_ollama_listens() -> None:
    assert OllamaConfig().base_url == "http://127.0.0.1:11434"
    assert OllamaConfig().boundary == "unknown"


def test_a_model_has_the_one_seat_that_ollama_gives_it() -> None:
    model = OllamaModel(model="m")
    assert (model.max_seqs, model.num_batch) == (1, None)


def test_a_prompt_that_is_read_to_its_end_is_waited_for() -> None:
    config = OllamaConfig()
    assert config.confirm_timeout_s >= 104.0  # as long as one was seen to be read on
    assert config.first_timeout_s >= config.confirm_timeout_s
