"""What a connection is told about itself."""

from collections.abc import Iterable

from onegate import __version__
from onegate.config import Config
from onegate.engines.base import PoolInfo
from onegate.protocol import messages as m
from onegate.server.classify import Decision
from onegate.server.peercred import Peer
from onegate.source import build


def peer_facts(peer: Peer) -> m.PeerFacts:
    """What the kernel said about the peer, as the wire shows it."""
    return m.PeerFacts(
        uid=peer.uid,
        gid=peer.gid,
        pid=peer.pid,
        unit=peer.unit,
        user_unit=peer.user_unit,
        slice=peer.slice,
        tty=peer.tty,
    )


def welcome(
    peer: Peer, decision: Decision, config: Config, pools: Iterable[PoolInfo], features: list[str]
) -> m.Welcome:
    """The answer to a hello: who the peer is, what it may do, and the limits that hold for it."""
    gate = config.gate
    return m.Welcome(
        peer=peer_facts(peer),
        class_=decision.class_,
        ceiling=decision.ceiling,
        why=list(decision.why),
        models=[
            m.ModelInfo(
                model=pool.model,
                state=pool.state.value,
                max_context_tok=pool.capacity.max_context_tok,
                features=pool.offers,
            )
            for pool in pools
        ],
        limits=m.Limits(
            max_frame_bytes=gate.max_frame_bytes,
            frame_timeout_ms=round(gate.frame_timeout_s * 1000),
            in_flight_per_session=gate.in_flight_per_session,
            classes={
                class_.name: m.ClassLimits(
                    max_tokens_default=class_.max_tokens_default,
                    max_tokens_max=class_.max_tokens_max,
                    ttft_timeout_ms=class_.ttft_timeout_ms,
                    ttft_timeout_ms_max=class_.ttft_timeout_ms_max,
                    timeout_ms=class_.timeout_ms,
                    timeout_ms_max=class_.timeout_ms_max,
                )
                for class_ in config.classes
                if class_.name in decision.allowed
            },
        ),
        features=features,
        version=build(__version__),
    )
