"""Grammars that nobody could follow."""

from onegate.engines.host.grammar.json_rules import RULES, any_object
from onegate.engines.host.grammar.nodes import Alt, Grammar, Many, Ref, Seq, Text
from onegate.engines.host.grammar.sound import begins_with_itself, never_ends

A, B = Ref("a"), Ref("b")
X = Text("x")


def grammar(**rules):
    return Grammar(A, rules)


def test_json_is_sound():
    assert never_ends(any_object()) is None
    assert begins_with_itself(Grammar(Ref("value"), RULES)) is None


def test_what_goes_on_for_ever_is_found():
    for endless in (
        grammar(a=A),
        grammar(a=Seq((X, A))),
        grammar(a=Seq((X, B)), b=Alt((Seq((X, A)), Seq((X, B))))),
        grammar(a=X, b=Many(B, 1)),
    ):
        assert never_ends(endless) in endless.rules
    for ending in (
        grammar(a=Alt((Seq((X, A)), X))),
        grammar(a=Seq((X, Many(A)))),
        grammar(a=Seq((X, B)), b=Alt((Seq((X, A)), Text("")))),
    ):
        assert never_ends(ending) is None


def test_a_long_chain_ends_in_either_order():
    chain = {f"r{i}": Ref(f"r{i + 1}") for i in range(300)} | {"r300": X}
    assert never_ends(Grammar(Ref("r0"), chain)) is None
    assert never_ends(Grammar(Ref("r0"), dict(reversed(chain.items())))) is None


def test_what_is_entered_again_before_any_text_is_found():
    for looping in (
        grammar(a=A),
        grammar(a=Alt((X, A))),
        grammar(a=B, b=Alt((X, A))),
        grammar(a=Seq((Text(""), B)), b=Many(A)),
        grammar(a=Seq((Many(X), A))),
        grammar(a=Seq((Alt((X, Text(""))), Seq((Text(""), A)), X))),
    ):
        assert begins_with_itself(looping) in looping.rules
    for fine in (grammar(a=Alt((X, Seq((X, A))))), grammar(a=Seq((Many(X, 1), A, B)), b=X)):
        assert begins_with_itself(fine) is None


def test_a_chain_of_thousands_is_no_recursion():
    chain = {f"r{i}": Ref(f"r{i + 1}") for i in range(5000)} | {"r5000": X}
    assert begins_with_itself(Grammar(Ref("r0"), chain)) is None
