from onegate.engines.child import child_environment


def test_only_what_an_engine_may_need():
    environment = {
        "PATH": "/bin",
        "HOME": "/root",
        "LC_ALL": "C",
        "CUDA_VISIBLE_DEVICES": "1",
        "OV_CACHE": "x",
        "LISTEN_FDS": "1",
        "NOTIFY_SOCKET": "/run/x",
        "WATCHDOG_USEC": "1",
        "PYTHONPATH": "/evil",
        "LD_PRELOAD": "/evil.so",
        "AWS_SECRET_ACCESS_KEY": "x",
        "HF_TOKEN": "x",
    }
    assert child_environment(environment).keys() == {
        "PATH",
        "HOME",
        "LC_ALL",
        "CUDA_VISIBLE_DEVICES",
        "OV_CACHE",
    }
