"""How much of a prompt the embedded engine reads at a time, for real."""

import itertools

from onegate.config import EngineConfig
from onegate.engines.base import Progress
from onegate.engines.host.step_size import LEAST_PROMPT_TOK
from onegate.protocol.content import Params

GREEDY = Params(temperature=0.0, ignore_eos=True)


async def test_a_prompt_is_read_in_pieces_that_are_done_in_time(new_box, monkeypatch, tmp_path):
    """One millisecond cannot be had, so it is the least; and the cache knows what a step costs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    box = new_box(EngineConfig(kind="openvino", kv_tok=2048, max_seqs=2), step_target_ms=1.0)
    await box.start()
    await box.ready()
    least_tok = 2 + LEAST_PROMPT_TOK
    assert box.pool.capacity.max_step_tok == least_tok
    assert f"max_num_batched_tokens={least_tok}" in box.pool.identity.launch
    assert any(f"at most {least_tok} tokens: 1 ms are wanted" in line for line in box.log)
    outcome = await box.run("The sea is wide. " * 20, max_tokens=3, params=GREEDY)
    read_tok = [0, *(event.prefilled_tok for event in outcome.of(Progress))]
    assert len(read_tok) > outcome.prompt_tok / least_tok
    pieces = [after - before for before, after in itertools.pairwise(read_tok)]
    assert max(pieces) <= least_tok
