"""Does this machine have a GPU that a server could compute on?"""

from pathlib import Path

# NVIDIA's driver, under Windows' Linux too; and what every driver of the kernel's own shows for a
# device that renders. All can be seen from a sandbox that is given no devices.
_SIGNS = ("proc/driver/nvidia", "dev/nvidiactl", "dev/dxg", "sys/class/drm/renderD*")


def has_gpu(root: Path = Path("/")) -> bool:
    """By what the kernel shows; `root` stands before every path."""
    return any(True for sign in _SIGNS for _ in root.glob(sign))
