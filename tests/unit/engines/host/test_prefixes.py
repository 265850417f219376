import pytest

from onegate.engines.host.prefixes import Prefixes

ALICE, BOB = "uid:1", "uid:2"


@pytest.fixture
def prefixes():
    """Twenty blocks of four tokens, of which ten may be remembered."""
    return Prefixes(20, 4)


def ids(n, first=0):
    return list(range(first, first + n))


@pytest.mark.parametrize(("n", "found"), [(12, 8), (13, 12), (100, 12), (4, 0), (5, 4), (0, 0)])
def test_whole_blocks_are_found_again_and_never_the_last_token(prefixes, n, found):
    prefixes.leave(ALICE, ids(15), [15])
    assert prefixes.found_tok(ALICE, ids(n), []) == found


def test_a_block_counts_only_behind_the_same_ones(prefixes):
    prefixes.leave(ALICE, ids(12), [12])
    assert prefixes.found_tok(ALICE, [99, *ids(12)[1:], 1], []) == 0
    assert prefixes.found_tok(ALICE, [*ids(4), 99, *ids(12)[5:], 1], []) == 4
    assert prefixes.found_tok(ALICE, [*ids(12)[4:], 1], []) == 0


def test_nobody_is_told_of_anothers(prefixes):
    prefixes.leave(ALICE, ids(12), [12])
    assert prefixes.found_tok(BOB, ids(13), []) == 0
    assert prefixes.found_tok(ALICE, ids(13), []) == 12


def test_what_was_left_longest_ago_is_forgotten(prefixes):
    for first in (0, 100, 200):
        prefixes.leave(ALICE, ids(12, first), [12])
    assert len(prefixes) == 8  # half of what the last one does not hold
    assert prefixes.found_tok(ALICE, ids(13), []) == 0, "its first block is gone"
    assert prefixes.found_tok(ALICE, ids(13, 200), []) == 12


def test_what_is_used_again_is_remembered_longer(prefixes):
    prefixes.leave(ALICE, ids(12), [])
    prefixes.leave(ALICE, ids(12, 100), [])
    assert prefixes.found_tok(ALICE, ids(13), []) == 12
    prefixes.leave(ALICE, ids(20, 200), [])
    assert prefixes.found_tok(ALICE, ids(13, 100), []) == 0
    assert prefixes.found_tok(ALICE, ids(13), []) == 12


def test_what_runs_takes_the_room(prefixes):
    prefixes.leave(ALICE, ids(12), [])
    assert prefixes.found_tok(ALICE, ids(13), [13, 13]) == 12  # eight blocks, six of twelve left
    assert prefixes.found_tok(ALICE, ids(13), [61]) == 0
    assert len(prefixes) == 2
    assert prefixes.found_tok(ALICE, ids(13), [1000]) == 0
    assert len(prefixes) == 0
