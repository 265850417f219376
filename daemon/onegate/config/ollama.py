"""`[engine.ollama]`: an Ollama that runs on this machine, and which of its models are served."""

from typing import Annotated

from msgspec import Struct

from onegate.config.http import HttpConfig
from onegate.config.units import Count, Line, Seconds, Tok, why


class OllamaModel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model of Ollama's, which is one pool. What is set here goes out with every request, so
    that no two of them make Ollama load it anew."""

    model: Annotated[
        Line, why("its name in Ollama; requests ask for it by the same name", restart=True)
    ]
    context_tok: Annotated[
        Tok,
        why(
            "longest prompt and answer of one request: Ollama's num_ctx, memory for each seat",
            "tokens",
            restart=True,
        ),
    ] = 4096
    num_batch: Annotated[
        Count | None,
        why(
            "prompt tokens of one step; fewer let a cancelled prompt end sooner; `none`: Ollama's",
            "tokens",
            restart=True,
        ),
    ] = None
    max_seqs: Annotated[
        Count,
        why(
            "seats: Ollama's OLLAMA_NUM_PARALLEL, which it does not tell; more than that queue "
            "inside it, where nobody has a rank",
            "sequences",
            restart=True,
        ),
    ] = 1


class OllamaConfig(HttpConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[engine.ollama]`: read when `kind = "ollama"`."""

    base_url: Annotated[
        Line, why("`http://HOST:PORT`, or `unix:/PATH` of a socket", restart=True)
    ] = "http://127.0.0.1:11434"
    models: Annotated[
        tuple[OllamaModel, ...],
        why("what is served of it, one `[[engine.ollama.models]]` each", restart=True),
    ] = ()
    idle_unload_s: Annotated[
        Seconds | None,
        why(
            "a model that nobody has asked for this long is put out of memory; `none`: Ollama's "
            "own setting, OLLAMA_KEEP_ALIVE",
            "s",
            restart=True,
        ),
    ] = None
    penalties: Annotated[
        bool,
        why(
            "presence_penalty, frequency_penalty and repeat_penalty are honoured: some of Ollama's "
            "runners ignore them and do not say so",
            restart=True,
        ),
    ] = False
    first_timeout_s: Annotated[
        Seconds,
        why("nothing back for this long, and the request is given up", "s", restart=True),
    ] = 600.0
    confirm_timeout_s: Annotated[
        Seconds,
        why(
            "a request that was left may keep its seat this long; older Ollamas read its prompt "
            "to the end first",
            "s",
            restart=True,
        ),
    ] = 300.0
