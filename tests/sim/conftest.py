"""The box, by name: tests of this tier are given it as a fixture."""

import pytest
from tests.sim.world import Box


@pytest.fixture
def box() -> type[Box]:
    """The box."""
    return Box
