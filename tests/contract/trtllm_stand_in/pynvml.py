"""The part of nvidia-ml-py that is used, with one GPU of 24 GB; without one where the environment
says so."""

import os
from types import SimpleNamespace


class NVMLError(Exception):
    pass


def nvmlInit():
    if os.environ.get("TLLM_STAND_IN_GPU") == "none":
        raise NVMLError("Driver Not Loaded")


def nvmlShutdown():
    pass


def nvmlDeviceGetCount():
    return 1


def nvmlDeviceGetHandleByIndex(index):
    if index != 0:
        raise NVMLError("Invalid Argument")
    return "gpu 0"


def nvmlDeviceGetHandleByUUID(uuid):
    raise NVMLError("Not Found")


def nvmlDeviceGetMigMode(handle):
    raise NVMLError("Not Supported")


def nvmlDeviceGetMemoryInfo(handle):
    return SimpleNamespace(total=24 << 30, free=20 << 30, used=4 << 30)


def nvmlDeviceGetCudaComputeCapability(handle):
    return (8, 9)


def nvmlDeviceGetComputeRunningProcesses(handle):
    return [SimpleNamespace(pid=4321)]


def nvmlDeviceGetName(handle):
    return "Stand-In 24"


def nvmlSystemGetDriverVersion():
    return "580.65"


def nvmlSystemGetCudaDriverVersion():
    return 13000
