import dataclasses

import pytest


def test_facts_do_not_change(pipeline):
    with pytest.raises(dataclasses.FrozenInstanceError):
        pipeline.facts.vocabulary = 1
