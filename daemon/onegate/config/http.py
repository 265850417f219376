"""`[engine.openai]` and what engines have in common that are somebody else's HTTP server."""

from typing import Annotated, Literal

from msgspec import Struct

from onegate.config.units import Count, Line, Seconds, Tok, why


class HttpConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the server is and how long it may take."""

    base_url: Annotated[
        Line,
        why(
            "`http://HOST:PORT`, `https://HOST:PORT` or `unix:/PATH`; a path may follow, behind a "
            "Unix socket as `unix:/PATH:/v1`",
            restart=True,
        ),
    ] = "http://127.0.0.1:8000/v1"
    boundary: Annotated[
        Literal["local", "unknown"],
        why(
            "an address on this machine may be a proxy or a tunnel: `local` is the owner's word "
            "that it is neither",
            restart=True,
        ),
    ] = "unknown"
    api_key_file: Annotated[
        Line | None,
        why(
            "file with the key, readable by the daemon alone; a name without a slash is a systemd "
            "credential (`LoadCredential=`)",
            restart=True,
        ),
    ] = None
    ca_file: Annotated[
        Line | None,
        why("certificate authority of an https server; `none`: the system's", restart=True),
    ] = None
    connect_timeout_s: Annotated[Seconds, why("until a connection is made", "s", restart=True)] = (
        5.0
    )
    first_timeout_s: Annotated[
        Seconds,
        why("until the first token of an answer; long prompts take long", "s", restart=True),
    ] = 300.0
    idle_timeout_s: Annotated[
        Seconds, why("between two tokens of an answer", "s", restart=True)
    ] = 60.0
    confirm_timeout_s: Annotated[
        Seconds,
        why(
            "a request whose connection was closed keeps its seat until the server is seen to have "
            "let go; one that does not within this time is given nothing more",
            "s",
            restart=True,
        ),
    ] = 60.0


class OpenAiPool(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model of the server, where its own word is not enough."""

    model: Annotated[Line, why("its name in the server's `/v1/models`")]
    max_seqs: Annotated[
        Count | None,
        why("requests that it runs at once; `none`: `max_seqs` of the server", "sequences"),
    ] = None
    context_tok: Annotated[
        Tok | None,
        why("longest prompt and answer of one request; `none`: `context_tok` of the server"),
    ] = None
    tools: Annotated[
        bool | None, why("it was started so that it calls tools; `none`: as it says itself")
    ] = None
    images: Annotated[bool | None, why("it reads images; `none`: as it says itself")] = None
    thinking: Annotated[
        bool | None, why("its template can switch thinking; `none`: as it says itself")
    ] = None
    embeddings: Annotated[bool, why("it was started to embed texts")] = False


class OpenAiConfig(HttpConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[engine.openai]`: a server that speaks the OpenAI API: vLLM, llama-server, trtllm-serve and
    others. It is never started and never stopped by the daemon."""

    flavour: Annotated[
        Literal["auto", "vllm", "llama-server", "trtllm", "none"],
        why(
            "which server it is, and so what it takes beyond the standard; `auto`: as it says "
            "itself, `none` where it does not",
            restart=True,
        ),
    ] = "auto"
    max_seqs: Annotated[
        Count | None,
        why(
            "requests that it runs at once, as it was started; more would wait inside it in no "
            "order. `none`: as it says itself, 4 where it does not. For each of its models: where "
            "several share its seats, as adapters of one model do, `gate.max_in_flight` is what "
            "bounds them together",
            "sequences",
            restart=True,
        ),
    ] = None
    context_tok: Annotated[
        Tok | None,
        why(
            "longest prompt and answer of one request; `none`: as it says itself, 4096 where it "
            "does not",
            "tokens",
            restart=True,
        ),
    ] = None
    pools: Annotated[
        tuple[OpenAiPool, ...],
        why(
            "the models to serve, one `[[engine.openai.pools]]` each; none: all that it lists",
            restart=True,
        ),
    ] = ()
