"""What Ollama says of itself: its version, its models, and what is in memory."""

import ast
import re
from collections.abc import Mapping

import msgspec

from onegate.engines.http.documents import document, encode
from onegate.engines.http.link import HttpLink
from onegate.engines.ollama.model import COMPLETION, Facts
from onegate.engines.ollama.names import canonical
from onegate.engines.ollama.shapes import (
    Loaded,
    PsAnswer,
    ShowAnswer,
    StatusAnswer,
    Tag,
    TagsAnswer,
    VersionAnswer,
)
from onegate.engines.ollama.version import Version, parse_version

# A stop string as /api/show prints it: quoted by Go's rules, of which Python's are a superset.
_STOP = re.compile(r'^stop\s+("(?:[^"\\\n]|\\.)*")\s*$', re.MULTILINE)
_CONTEXT = ".context_length"
# They go out with each request. A model has some ten lines of parameters; what lies beyond these
# bounds is no model's.
_MAX_PARAMETERS_CHARS = 64 << 10
_MAX_STOPS = 64


async def version_of(link: HttpLink) -> Version:
    """Which Ollama this is. Raises EngineMalformed where it is none."""
    return parse_version(document(await link.get("/api/version"), VersionAnswer).version)


async def cloud_disabled(link: HttpLink, version: Version) -> bool | None:
    """Whether the server itself refuses what would leave the machine; None where it is too old
    to say."""
    if not version.status:
        return None
    return document(await link.get("/api/status"), StatusAnswer).cloud.disabled


async def tags(link: HttpLink) -> dict[str, Tag]:
    """The models of the store, by canonical name."""
    found = document(await link.get("/api/tags"), TagsAnswer).models or []
    return {canonical(tag.name): tag for tag in found}


async def loaded(link: HttpLink) -> dict[str, Loaded]:
    """The models in memory, by canonical name."""
    found = document(await link.get("/api/ps"), PsAnswer).models or []
    return {canonical(model.name): model for model in found}


async def facts(link: HttpLink, name: str, digest: str) -> Facts:
    """What a model can do. Never asked of a cloud name, which would answer from elsewhere."""
    shown = document(await link.post("/api/show", encode({"model": name})), ShowAnswer)
    return Facts(
        digest=digest,
        # Servers before capabilities had models that complete, and they alone are left unnamed.
        capabilities=frozenset(shown.capabilities or (COMPLETION,)),
        stops=stops(shown.parameters),
        trained_tok=trained_tok(shown.model_info or {}),
        remote_host=shown.remote_host,
    )


def stops(parameters: str) -> tuple[str, ...]:
    """The model's own stop strings out of the text of its parameters, 64 at most."""
    found: list[str] = []
    for match in _STOP.finditer(parameters[:_MAX_PARAMETERS_CHARS]):
        if len(found) == _MAX_STOPS:
            break
        try:
            value = ast.literal_eval(match[1])
        except (ValueError, SyntaxError):
            continue  # an escape that is none: not a string that text could contain
        if isinstance(value, str) and value:
            found.append(value)
    return tuple(found)


def trained_tok(info: Mapping[str, msgspec.Raw]) -> int | None:
    """The context length out of the model's own description; its key begins with the family."""
    for key, raw in info.items():
        if key.endswith(_CONTEXT):
            try:
                value = msgspec.json.decode(raw, type=int)
            except msgspec.DecodeError:
                return None
            return value if 0 < value < 2**31 else None
    return None
