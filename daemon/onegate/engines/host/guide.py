"""What the form of an answer asks of the engine: a grammar that is followed to its end."""

from msgspec import UNSET

from onegate.engines.host.engine import Refusal
from onegate.engines.host.grammar.json_rules import any_object
from onegate.engines.host.grammar.nodes import Grammar
from onegate.engines.host.grammar.schema import grammar_of
from onegate.protocol.content import Params


def guide_of(params: Params) -> Grammar | None:
    """The grammar of the answer, None where any text will do.

    Raises Refusal: for a schema as `grammar_of`, and for parameters that would have the answer go
    on behind its end, where a grammar allows nothing.
    """
    wanted = params.response_format
    if wanted is UNSET or wanted.type == "text":
        return None
    if params.ignore_eos is True:
        raise Refusal(
            "invalid",
            "an answer of a given form ends where it is complete: leave out ignore_eos",
            path="params.ignore_eos",
        )
    if params.min_tokens is not UNSET and params.min_tokens > 0:
        raise Refusal(
            "invalid",
            "an answer of a given form ends where it is complete: leave out min_tokens",
            path="params.min_tokens",
        )
    if wanted.type == "json_object":
        return any_object()
    if wanted.json_schema is None:
        raise Refusal("invalid", "the schema is missing", path="params.response_format.json_schema")
    return grammar_of(wanted.json_schema.schema)
