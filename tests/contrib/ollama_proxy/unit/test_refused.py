"""The refusals that the proxy makes by itself."""

import pytest

from onegate_ollama_proxy.bound import Full
from onegate_ollama_proxy.refused import no_of_full, no_of_upstream
from onegate_ollama_proxy.upstream import UpstreamBroke, UpstreamDown, UpstreamStuck


@pytest.mark.parametrize(
    ("error", "status"), [(UpstreamDown, 503), (UpstreamStuck, 504), (UpstreamBroke, 502)]
)
def test_an_ollama_that_does_not_do_its_part(error, status):
    said = no_of_upstream(error("so it is"))
    assert (said.status, said.sentence, said.retryable) == (status, "so it is", True)


def test_too_many_at_a_time_may_come_again():
    said = no_of_full(Full("9 are under way"))
    assert said.status == 429
    assert said.retryable
    assert said.retry_after_ms
