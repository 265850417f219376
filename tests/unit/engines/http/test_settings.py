from dataclasses import FrozenInstanceError, fields

import pytest

from onegate.engines.http.settings import HttpSettings


def test_every_key_has_its_unit_in_its_name_and_stays():
    assert all(field.name.rpartition("_")[2] in ("s", "ms") for field in fields(HttpSettings))
    settings = HttpSettings(
        first_s=1.0,
        idle_s=1.0,
        confirm_s=1.0,
        watch_s=1.0,
        backoff_first_ms=1,
        backoff_max_ms=1,
        backoff_reset_s=1.0,
    )
    with pytest.raises(FrozenInstanceError):
        settings.idle_s = 2.0
