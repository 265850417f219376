"""Names as Ollama reads them."""

import pytest

from onegate.engines.ollama.names import canonical, is_cloud


@pytest.mark.parametrize(
    ("name", "spelling"),
    [
        ("llama3.2", "llama3.2:latest"),
        ("llama3.2:latest", "llama3.2:latest"),
        (" LLama3.2:1B ", "llama3.2:1b"),
        ("hf.co/user/model:Q4_K_M", "hf.co/user/model:q4_k_m"),
        ("localhost:5000/library/tiny", "localhost:5000/library/tiny:latest"),
        ("localhost:5000/library/tiny:x", "localhost:5000/library/tiny:x"),
    ],
)
def test_two_names_of_one_model_are_spelt_alike(name, spelling):
    assert canonical(name) == spelling


@pytest.mark.parametrize("name", ["gpt-oss:cloud", "gpt-oss:120b-cloud", "x/y:CLOUD", "a:b-Cloud"])
def test_a_cloud_tag_leaves_the_machine(name):
    assert is_cloud(name)


@pytest.mark.parametrize(
    "name", ["cloud", "cloud:latest", "gpt-oss:local", "my-cloud", "host:80/cloud", "x:cloudy"]
)
def test_what_only_sounds_like_it_stays(name):
    assert not is_cloud(name)
