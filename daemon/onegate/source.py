"""Which code this is, more exactly than its version number says."""

import hashlib
from functools import cache
from pathlib import Path

_SHOWN = 8


def digest(package: Path = Path(__file__).parent) -> str:
    """Eight hex digits of the SHA-256 over every module below `package`, names included.

    The same for every copy of the same code, wherever it is installed; a module that is not there,
    or is another one, changes it. Raises OSError where a module cannot be read.
    """
    whole = hashlib.sha256()
    modules = {path.relative_to(package).as_posix(): path for path in package.rglob("*.py")}
    for name in sorted(modules):
        code = hashlib.sha256(modules[name].read_bytes()).hexdigest()
        whole.update(f"{name}:{code}\n".encode())
    return whole.hexdigest()[:_SHOWN]


@cache
def build(version: str) -> str:
    """`version+digest` of the code that this process runs: as it was when first asked for."""
    try:
        return f"{version}+{digest()}"
    except OSError:
        return version
