"""What an answer is made of while it is generated: counts, times, and text held for the client."""

from onegate.engines.base import EngineChunk, Finished
from onegate.protocol.content import ChunkKind, Identity, Usage
from onegate.protocol.messages import Chunk, Done, Notice, Timings
from onegate.server.live import LiveRequest

NS_PER_MS = 1e6


def merged(chunks: list[Chunk]) -> list[Chunk]:
    """One chunk per kind, in order of first appearance; tool calls stay one chunk each."""
    by_kind: dict[ChunkKind, list[Chunk]] = {}
    calls = []
    for chunk in chunks:
        if chunk.tool_call is not None:
            calls.append(chunk)
        else:
            by_kind.setdefault(chunk.kind, []).append(chunk)
    texts = [
        Chunk(
            id=parts[0].id,
            kind=kind,
            text="".join(part.text for part in parts),
            n_tok=sum(part.n_tok for part in parts),
            token_ids=[t for part in parts for t in part.token_ids or ()] or None,
            logprobs=[p for part in parts for p in part.logprobs or ()] or None,
        )
        for kind, parts in by_kind.items()
    ]
    return texts + calls


class Answer:
    """One request's answer, possibly over several runs of the engine.

    `tok_ids` and `shown_chars` are what an exact resume needs; `seen` tells whether the client has
    been sent anything of it.
    """

    def __init__(self, live: LiveRequest, *, stream: bool, want_tok_ids: bool) -> None:
        self._live = live
        self._stream = self._streams = stream
        self._want_tok_ids = want_tok_ids
        self._held: list[Chunk] = []
        self.tok_ids: list[int] = []
        self.shown_chars = 0
        self.seen = False
        self.runs = 0
        self.notices: list[Notice] = []

    def add(self, chunk: EngineChunk, now_ns: int) -> None:
        """Take a piece; it goes on at once when the client streams."""
        live = self._live
        live.output_tok += chunk.n_tok
        self.tok_ids.extend(chunk.token_ids or ())
        self.shown_chars += len(chunk.text)
        if live.first_text_ns is None and (chunk.text or chunk.tool_call is not None):
            live.first_text_ns = now_ns
        out = Chunk(
            id=live.id,
            kind=chunk.kind,
            text=chunk.text,
            n_tok=chunk.n_tok,
            token_ids=chunk.token_ids if self._want_tok_ids else None,
            logprobs=chunk.logprobs,
            tool_call=chunk.tool_call,
        )
        if self._stream:
            self.seen = True
            live.client.send(out)
        else:
            self._held.append(out)

    def hold(self) -> None:
        """Show nothing more until the end, or until it begins anew."""
        self._stream = False

    def restart(self) -> None:
        """This run is over and nobody has seen its output: begin again from nothing."""
        self._stream = self._streams
        self._held.clear()
        self.tok_ids.clear()
        self.shown_chars = 0
        self._live.output_tok = 0
        self._live.first_text_ns = None

    def finish(self, end: Finished, identity: Identity, now_ns: int) -> None:
        """Send what was held, and the end."""
        live = self._live
        for chunk in merged(self._held):
            live.client.send(chunk)
        live.client.send(
            Done(
                id=live.id,
                rid=live.rid,
                finish_reason=end.finish_reason,
                usage=Usage(prompt_tok=end.usage.prompt_tok, output_tok=live.output_tok),
                timings=timings(live, now_ns, preempted=max(0, self.runs - 1)),
                identity=identity,
                notices=self.notices,
            )
        )


def timings(live: LiveRequest, now_ns: int, *, preempted: int) -> Timings:
    """Where the time of a request went. Its runs after the first follow a cut."""
    granted_ns = live.granted_ns if live.granted_ns is not None else now_ns
    first_ns = live.first_text_ns
    decode_ms = None if first_ns is None else (now_ns - first_ns) / NS_PER_MS
    # The first token ends the prefill, so the rate is over those that came after it.
    rate = (live.output_tok - 1) / decode_ms * 1e3 if decode_ms and live.output_tok > 1 else None
    return Timings(
        queue_ms=(granted_ns - live.arrived_ns) / NS_PER_MS,
        e2e_ms=(now_ns - live.arrived_ns) / NS_PER_MS,
        ttft_ms=None if first_ns is None else (first_ns - live.arrived_ns) / NS_PER_MS,
        prefill_ms=None if first_ns is None else (first_ns - granted_ns) / NS_PER_MS,
        decode_ms=decode_ms,
        tok_per_s=rate,
        cached_tok=live.work.cached_tok,
        preempted=preempted,
        predicted_wait_ms=None if live.predicted_ns is None else live.predicted_ns / NS_PER_MS,
    )
