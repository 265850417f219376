"""The configured models, and what Ollama says of them."""

from collections.abc import Callable

from onegate.clock import monotonic_ns
from onegate.config import OllamaConfig
from onegate.engines.base import EngineError, EngineNotice, PoolInfo
from onegate.engines.http.link import HttpLink, HttpStatus
from onegate.engines.ollama import survey
from onegate.engines.ollama.model import Facts, Known, missing, pool_of
from onegate.engines.ollama.names import canonical, is_cloud
from onegate.engines.ollama.refusal import refusal
from onegate.engines.ollama.shapes import Tag
from onegate.engines.ollama.version import Version

# What lies in the store is asked for this seldom: Ollama looks through the disk for an answer.
_STORE_EVERY_NS = 30_000_000_000
_CLOUD_HOST = "ollama.com"


class Store:
    """Every model, in the order of the configuration.

    `boundary` is where the server itself is. What it answers from elsewhere leaves the machine all
    the same: such a model is served only with `allow_remote`. `expects_gpu`: whether a model that
    is on no GPU at all is worth a word.
    """

    def __init__(
        self,
        config: OllamaConfig,
        *,
        boundary: str,
        allow_remote: bool,
        log: Callable[[str], None],
        expects_gpu: bool = True,
    ) -> None:
        self._expects_gpu = expects_gpu
        self._penalties = config.penalties
        self._boundary = boundary
        self._allow_remote = allow_remote
        self._log = log
        self._models = {model.model: Known(model) for model in config.models}
        self._version: Version | None = None
        self._cloud_disabled: bool | None = None
        self._looked_ns: int | None = None
        self._said: dict[str, str] = {}
        self._offloads: dict[str, str | None] = {}

    def __getitem__(self, model: str) -> Known:
        return self._models[model]

    def pools(self) -> list[PoolInfo]:
        """Every model as a pool, as it is now."""
        return [
            pool_of(
                known, self._version, penalties=self._penalties, boundary=self._boundary_of(known)
            )
            for known in self._models.values()
        ]

    def offloads(self) -> list[EngineNotice]:
        """What has changed since the last time of which models are not wholly on a GPU. One that is
        wholly on the processor is no news where the machine has nothing else."""
        notices = []
        for known in self._models.values():
            share, detail = known.offload(), None
            if share and (share < 1 or self._expects_gpu):
                detail = (
                    f"{_percent(share)} % of it is on the CPU and not on a GPU, and so it is slow: "
                    "free the GPU's memory, or lower context_tok or max_seqs"
                )
            if self._offloads.get(known.name) != detail:
                self._offloads[known.name] = detail
                notices.append(EngineNotice(code="offload", model=known.name, detail=detail))
        return notices

    def is_remote(self, known: Known) -> bool:
        """Whether Ollama has it answered elsewhere: by its name, or by what was said of it."""
        return is_cloud(known.name) or bool(known.remote_host)

    def came_from(self, known: Known, host: str) -> bool:
        """An answer says that it was made at `host`; false where nobody has allowed that."""
        known.remote_host = host
        self._judge(known)
        return self._allow_remote

    async def learn(self, link: HttpLink) -> None:
        """Everything anew. Raises EngineErrors where the server does not answer."""
        self._version = await survey.version_of(link)
        self._cloud_disabled = await survey.cloud_disabled(link, self._version)
        await self._look_into_store(link)
        await self.look(link)

    async def look(self, link: HttpLink) -> None:
        """What is in memory, and now and then what lies in the store. Raises EngineErrors."""
        if self._looked_ns is None or monotonic_ns() - self._looked_ns > _STORE_EVERY_NS:
            await self._look_into_store(link)
        loaded = await survey.loaded(link)
        # Two names of the same model share a runner, which is listed under the one it came by.
        by_digest = {model.digest: model for model in loaded.values() if model.digest}
        for known in self._models.values():
            digest = "" if known.facts is None else known.facts.digest
            known.loaded = loaded.get(canonical(known.name)) or by_digest.get(digest)

    async def _look_into_store(self, link: HttpLink) -> None:
        tags = await survey.tags(link)
        for known in self._models.values():
            await self._learn(link, known, tags)
        self._looked_ns = monotonic_ns()

    async def _learn(self, link: HttpLink, known: Known, tags: dict[str, Tag]) -> None:
        known.error = None
        tag = tags.get(canonical(known.name))
        if is_cloud(known.name):
            # Asking about it would already go there.
            known.facts = known.facts or Facts(digest="" if tag is None else tag.digest)
            known.remote_host = known.remote_host or _CLOUD_HOST
        elif tag is None:
            known.error = missing(known.name, tags)
            return
        elif known.facts is None or known.facts.digest != tag.digest:
            known.remote_host = tag.remote_host
            try:
                known.facts = await survey.facts(link, known.name, tag.digest)
            except HttpStatus as status:
                known.error = str(refusal(status.status, status.body))
                return
            known.remote_host = tag.remote_host or known.facts.remote_host
            self._check_context(known)
        self._judge(known)

    def _judge(self, known: Known) -> None:
        if not self.is_remote(known):
            return
        host = known.remote_host or _CLOUD_HOST
        if not self._allow_remote:
            known.error = (
                f"{known.name} is answered at {host}: text would leave this machine. Choose a "
                "local model, or set engine.allow_remote = true"
            )
        elif self._cloud_disabled:
            known.error = (
                f"{known.name} is answered at {host}, and Ollama's cloud is switched off there "
                "(OLLAMA_NO_CLOUD, or disable_ollama_cloud in its server.json)"
            )

    def _check_context(self, known: Known) -> None:
        if known.context_tok < known.config.context_tok:
            self._say(
                f"{known.name} context",
                f"{known.name} was trained for {known.context_tok} tokens: its context_tok of "
                f"{known.config.context_tok} is cut to that",
            )

    def _say(self, about: str, text: str) -> None:
        if self._said.get(about) != text:
            self._said[about] = text
            self._log(text)

    def _boundary_of(self, known: Known) -> str:
        return "remote" if self.is_remote(known) else self._boundary


def _percent(share: float) -> int:
    """Rounded, but a part never reads as nothing or all."""
    return 100 if share == 1 else min(99, max(1, round(100 * share)))


def text_of(error: EngineError) -> str:
    """The sentence of an error, of an answer's status in particular."""
    if isinstance(error, HttpStatus):
        return str(refusal(error.status, error.body))
    return str(error)
