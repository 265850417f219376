from onegate.engines.http.dialect import Call, Leaving, Phase, Watched


def test_what_is_not_said_is_empty():
    assert dict(Call("/x", b"{}").headers) == {}
    assert Watched().pools is None
    assert Watched().snapshots == Watched().notices == []
    assert Leaving(1, "m", Phase.SENT, 0, others=0).foreign == 0
