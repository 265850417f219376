"""The thread that loads, and its end: the library blocks for minutes while a model comes up."""

import threading
from dataclasses import dataclass, replace
from pathlib import Path

from onegate.engines.host.digest import weights_digest, weights_stamp
from onegate.engines.host.engine import LoadFailed
from onegate.engines.host.settings import TensorRtLlmSettings
from onegate.engines.host.trtllm.load import Loaded, load
from onegate.engines.host.trtllm.mailbox import Mailbox
from onegate.engines.host.trtllm.messages import Broken, Message

# To free a model that is to be replaced, or is not wanted any more.
UNLOAD_S = 30.0


@dataclass(frozen=True)
class Outcome:
    """How a load ended: what there is now, or the sentence for the operator."""

    loaded: Loaded | None
    error: str = ""


Mail = Mailbox[Message | Outcome]


class Loader:
    """One load at a time; `mail` gets its outcome, or word that only a new process will do."""

    def __init__(self, settings: TensorRtLlmSettings, digest_cache: Path, mail: Mail) -> None:
        self._settings = settings
        self._digest_cache = digest_cache
        self._mail = mail
        self._limit: threading.Timer | None = None

    @property
    def loading(self) -> bool:
        """From `start` until `heard`."""
        return self._limit is not None

    def start(self, before: Loaded | None) -> None:
        """Begin. `before`: what is loaded now, and may be what is wanted."""
        self._limit = threading.Timer(self._settings.load_s, self._too_long)
        self._limit.daemon = True
        self._limit.start()
        thread = threading.Thread(target=self._run, args=(before,), name="trtllm load", daemon=True)
        thread.start()

    def heard(self) -> None:
        """The outcome has been taken; a later one of the same load is none."""
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _run(self, before: Loaded | None) -> None:
        try:
            if before is not None:
                path = Path(self._settings.path)
                stamp = weights_stamp(path)
                digest, _ = weights_digest(path, self._digest_cache)
                if digest == before.identity.digest:
                    # Other files, and the same in them.
                    self._mail.post(Outcome(replace(before, stamp=stamp)))
                    return
                if not before.session.end(UNLOAD_S):
                    self._mail.post(Broken("it did not free its memory, and was ended"))
                    return
            self._mail.post(Outcome(load(self._settings, self._digest_cache, self._mail.post)))
        except (LoadFailed, OSError) as error:
            self._mail.post(Outcome(None, str(error)))
        except Exception as error:
            # A bug of ours or a surprise of the library's: either way nothing is loaded.
            self._mail.post(Outcome(None, f"the load failed: {type(error).__name__}: {error}"))

    def _too_long(self) -> None:
        """In the timer's thread."""
        text = f"it did not come up within {self._settings.load_s:g} s: see its lines above, or "
        self._mail.post(Outcome(None, f"{text}raise engine.tensorrt_llm.load_timeout_s"))
