"""Prompts of exact lengths, whatever counts them."""

from collections.abc import Callable

import pytest

from onegate.bench.prompts import Count, PromptTooShort, Rule, learn, prompt


def counts(rule: Callable[[str], int]) -> Count:
    async def count(text: str) -> int:
        return rule(text)

    return count


def by_bytes(text: str) -> int:
    return -(-len(text.encode()) // 4)


def by_words(text: str) -> int:
    return 30 + len(text.split())


def by_letters(text: str) -> int:
    return sum(1 + len(word) // 4 for word in text.split())


async def test_a_target_that_counts_words_adds_its_template() -> None:
    rule = await learn(counts(by_words))
    assert rule == Rule("words", 30, True)
    assert by_words(prompt(rule, 100, "a")) == 100


async def test_a_target_that_counts_bytes() -> None:
    rule = await learn(counts(by_bytes))
    assert rule == Rule("bytes", 0, True)
    assert [by_bytes(prompt(rule, n, "a")) for n in (1, 2, 77, 2000)] == [1, 2, 77, 2000]


async def test_a_target_that_counts_unevenly_is_said_to() -> None:
    rule = await learn(counts(by_letters))
    assert rule.alphabet == "bytes" or not rule.exact
    assert not (await learn(counts(lambda text: len(text) + text.count("a")))).exact


def test_prompts_differ_from_their_first_word_on_and_repeat_with_their_key() -> None:
    rule = Rule("words", 0, True)
    texts = [prompt(rule, 50, f"{i}") for i in range(50)]
    assert len(set(texts)) == 50
    assert len({text.split()[0] for text in texts}) > 20
    assert prompt(rule, 50, "3") == texts[3]


def test_a_shared_beginning_is_shared_and_leaves_a_word_of_ones_own() -> None:
    rule = Rule("words", 0, True)
    one, two = (
        prompt(rule, 20, key, shared_tok=8, shared_key="agent").split() for key in ("1", "2")
    )
    assert one[:8] == two[:8]
    assert one[8:] != two[8:]
    assert len(one) == 20
    assert len(prompt(rule, 4, "1", shared_tok=100, shared_key="agent").split()) == 4


def test_a_prompt_shorter_than_the_template_cannot_be() -> None:
    with pytest.raises(PromptTooShort, match="adds 30"):
        prompt(Rule("words", 30, True), 30, "a")
