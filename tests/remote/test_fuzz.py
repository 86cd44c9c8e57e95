"""A few hundred of what `python -m tests.remote.fuzz` tries by the ten thousand."""

from __future__ import annotations

import pytest

from tests.remote import fuzz


@pytest.mark.parametrize("name", fuzz.PROPERTIES)
def test_what_comes_is_taken_or_refused(name: str) -> None:
    fuzz.examples(name, 200)()


def test_the_watch_on_memory_sees_what_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check of shape against bytes, the fuzz fails."""
    from weave.remote import codec

    monkeypatch.setattr(fuzz, "decode", lambda *args, **kwargs: fuzz.torch.empty(1 << 20))
    with pytest.raises(AssertionError, match="bytes asked of torch"):
        fuzz.try_value(b"\xc0", [])
    monkeypatch.setattr(fuzz, "decode", lambda *args, **kwargs: bytearray(1 << 20))
    with pytest.raises(AssertionError, match="bytes of memory"):
        fuzz.try_value(b"\xc0", [])
    assert codec.decode(b"\xc0", [], where="", node="", most=fuzz.MOST) is None
