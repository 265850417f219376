"""Whether the kernel shows a GPU."""

import pytest

from onegate.engines.http.gpu import has_gpu


@pytest.mark.parametrize(
    "sign", ["proc/driver/nvidia", "dev/nvidiactl", "dev/dxg", "sys/class/drm/renderD128"]
)
def test_a_sign_of_one(tmp_path, sign):
    (tmp_path / sign).mkdir(parents=True)
    assert has_gpu(tmp_path)


def test_a_screen_alone_is_none(tmp_path):
    (tmp_path / "sys/class/drm/card0").mkdir(parents=True)
    assert not has_gpu(tmp_path)
