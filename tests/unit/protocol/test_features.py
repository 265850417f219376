"""What two versions agree on."""

from typing import get_args

import pytest

from onegate.protocol import messages as m
from onegate.protocol.errors import RemoteProtocolError
from onegate.protocol.features import BUILT, FEATURE_OF, KNOWN, V1, lacking, negotiate


def test_both_sides_must_have_it() -> None:
    assert negotiate(["v1", "lease", "from_tomorrow"], frozenset({"v1", "load"})) == {"v1"}


@pytest.mark.parametrize("offered", [[], ["lease"], ["v2"], ["V1"]])
def test_without_v1_there_is_nothing_to_say(offered: list[str]) -> None:
    with pytest.raises(RemoteProtocolError, match="v1"):
        negotiate(offered)


def test_only_what_is_known_is_built() -> None:
    assert V1 in BUILT <= KNOWN


def test_verbs_of_v1_are_never_lacking() -> None:
    for kind in set(get_args(m.ClientMessage)) - set(FEATURE_OF):
        assert lacking(kind, frozenset({V1})) is None


@pytest.mark.parametrize("kind", FEATURE_OF, ids=lambda kind: kind.__name__)
def test_verbs_of_a_feature_need_it(kind: type) -> None:
    assert lacking(kind, frozenset({V1})) == FEATURE_OF[kind]
    assert lacking(kind, frozenset({V1, FEATURE_OF[kind]})) is None
