"""Which of Ollama's models can be put behind the gate: those that write text on this machine.

`python -m onegate.engines.ollama.listing URL`, for install.sh: one name a line, newest first.
"""

import asyncio
import sys

from onegate.config import OllamaConfig
from onegate.engines.base import EngineError
from onegate.engines.http.build import http_link
from onegate.engines.http.link import HttpLink
from onegate.engines.ollama import survey
from onegate.engines.ollama.model import COMPLETION
from onegate.engines.ollama.names import is_cloud
from onegate.engines.ollama.store import text_of
from onegate.engines.plan import EngineUnprepared

_LATEST = ":latest"
# Each is a pool, and somebody has to read their list.
_MOST = 16
_EXIT_USAGE, _EXIT_UNAVAILABLE = 64, 69


async def fit(link: HttpLink) -> list[str]:
    """Their names, without the tag that no name needs. Raises EngineErrors."""
    found: list[str] = []
    for tag in (await survey.tags(link)).values():
        # Asking about a cloud name would already go there.
        if is_cloud(tag.name) or tag.remote_host:
            continue
        facts = await survey.facts(link, tag.name, tag.digest)
        if COMPLETION in facts.capabilities and not facts.remote_host:
            found.append(tag.name.removesuffix(_LATEST))
        if len(found) == _MOST:
            break
    return found


def main(arguments: list[str]) -> int:
    """Exit codes follow sysexits: 0 done, 64 usage, 69 an Ollama that does not answer or has
    none."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m onegate.engines.ollama.listing URL\n")
        return _EXIT_USAGE
    (url,) = arguments
    try:
        names = asyncio.run(_ask(url))
    except (EngineError, EngineUnprepared) as error:
        said = text_of(error) if isinstance(error, EngineError) else str(error)
        sys.stderr.write(f"{said}: start Ollama, or name its models with --model\n")
        return _EXIT_UNAVAILABLE
    if not names:
        sys.stderr.write(f"the Ollama at {url} has no model of its own: ollama pull llama3.2\n")
        return _EXIT_UNAVAILABLE
    sys.stdout.write("".join(f"{name}\n" for name in names))
    return 0


async def _ask(url: str) -> list[str]:
    link, _ = http_link(OllamaConfig(base_url=url), allow_remote=False)
    try:
        return await fit(link)
    finally:
        await link.aclose()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
