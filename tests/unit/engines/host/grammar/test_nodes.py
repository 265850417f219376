"""A grammar as the library reads it."""

from onegate.engines.host.grammar.nodes import Alt, Grammar, Many, OneOf, Ref, Seq, Text


def written(node, **rules):
    return Grammar(node, rules).ebnf()


def test_each_form_in_the_librarys_words():
    node = Seq(
        (Text("a"), Alt((Ref("b"), Many(Text("c")))), Many(Ref("b"), 2, 3), Many(Ref("b"), 1))
    )
    assert written(node, b=OneOf((("0", "9"),))) == (
        'root ::= ("a" (b | ("c")*) (b){2,3} (b){1,})\nb ::= [0-9]\n'
    )


def test_nothing_is_an_empty_text():
    assert written(Text("")) == 'root ::= ""\n'


def test_whatever_could_be_read_as_something_else_is_written_by_its_number():
    assert written(Text('"\\\n\u20ac\U0001f600')) == (
        'root ::= "\\"\\\\\\u000a\\u20ac\\U0001f600"\n'
    )
    ranges = (("]", "]"), ("^", "^"), ("-", "-"), ("\0", "\x1f"))
    assert written(OneOf(ranges, negated=True)) == (
        "root ::= [^\\u005d\\u005e\\u002d\\u0000-\\u001f]\n"
    )


def test_no_digit_stands_behind_a_number():
    assert written(Text("gl\u00fccklich")) == 'root ::= "gl\\u00fc" "cklich"\n'
    assert written(Text("\x7fA\u00e41 \u00df")) == ('root ::= "\\u007f" "A\\u00e4" "1 \\u00df"\n')
    assert written(OneOf((("\u00fc", "\u00fc"), ("a", "f"), ("/", "/"), ("0", "0")))) == (
        "root ::= [a-f0\\u00fc\\u002f]\n"
    )


def test_a_character_is_in_its_ranges_or_outside():
    some = OneOf((("a", "c"), ("x", "x")))
    assert [some.has(char) for char in "acdx"] == [True, True, False, True]
    others = OneOf(some.ranges, negated=True)
    assert [others.has(char) for char in "acdx"] == [False, False, True, False]
