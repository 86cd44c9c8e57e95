"""The link's settings: what is allowed, how the environment gives them, what two ranks must have alike."""

from __future__ import annotations

from typing import Any

import pytest

from weave.remote.options import LinkOptions

GOOD: dict[str, tuple[str, Any]] = {
    "SECURITY": ("curve", "curve"),
    "TIMEOUT": ("2.5", 2.5),
    "MAX_MESSAGE_BYTES": ("512MiB", 512 << 20),
    "MAX_FRAMES": ("16", 16),
    "HEARTBEAT": ("0.2", 0.2),
    "LINGER": ("0", 0.0),
    "CREDITS": ("4", 4),
    "DEBUG": ("Yes", True),
    "ADDRESS": ("[::1]:29500", "[::1]:29500"),
    "INTERFACE": ("10.0.0.1", "10.0.0.1"),
}
BAD = [
    ("security", "none"),
    ("security", None),
    ("timeout", 0),
    ("timeout", float("inf")),
    ("timeout", True),
    ("max_message_bytes", 1000),
    ("max_message_bytes", 1e9),
    ("max_frames", 1),
    ("heartbeat", -1.0),
    ("linger", -0.1),
    ("credits", 0),
    ("credits", True),
    ("debug", 1),
    ("address", "host"),
    ("address", "host:0"),
    ("address", "host:70000"),
    ("address", ":29500"),
    ("address", "::1:29500"),
    ("interface", "0.0.0.0"),
    ("interface", "*"),
    ("interface", ""),
]
BAD_TEXTS = [
    ("SECURITY", "none"),
    ("TIMEOUT", "soon"),
    ("TIMEOUT", "nan"),
    ("MAX_MESSAGE_BYTES", "4XB"),
    ("MAX_MESSAGE_BYTES", "1KiB"),
    ("MAX_FRAMES", "1.5"),
    ("CREDITS", "two"),
    ("DEBUG", "maybe"),
    ("ADDRESS", "host"),
    ("INTERFACE", "::"),
]


def test_the_environment_gives_each_setting() -> None:
    read = LinkOptions.from_environment({f"WEAVE_LINK_{name}": text for name, (text, _) in GOOD.items()})
    assert {name: getattr(read, name.lower()) for name in GOOD} == {name: value for name, (_, value) in GOOD.items()}


def test_what_is_not_set_or_empty_is_the_default() -> None:
    assert LinkOptions.from_environment({"WEAVE_LINK_TIMEOUT": " ", "WEAVE_OTHER": "1", "PATH": "/"}) == LinkOptions()


@pytest.mark.parametrize(("name", "text"), BAD_TEXTS)
def test_a_bad_variable_is_named_with_its_value_and_what_is_allowed(name: str, text: str) -> None:
    with pytest.raises(ValueError) as caught:
        LinkOptions.from_environment({f"WEAVE_LINK_{name}": text})
    assert str(caught.value).startswith(f"WEAVE_LINK_{name}={text!r}: ")
    assert len(str(caught.value)) > len(f"WEAVE_LINK_{name}={text!r}: ") + 10


def test_a_variable_that_is_no_setting_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"WEAVE_LINK_TIMOUT='4'.*did you mean WEAVE_LINK_TIMEOUT\?"):
        LinkOptions.from_environment({"WEAVE_LINK_TIMOUT": "4"})
    with pytest.raises(ValueError, match="there are WEAVE_LINK_SECURITY, WEAVE_LINK_TIMEOUT"):
        LinkOptions.from_environment({"WEAVE_LINK_QZQZ": "4"})


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_argument_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError) as caught:
        LinkOptions(**{name: value})
    assert f"{name}={value!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "count"),
    [("65536", 65536), ("1M", 1 << 20), ("64k", 65536), ("2 GB", 2 << 30), ("1tib", 1 << 40)],
)
def test_sizes_as_people_write_them(text: str, count: int) -> None:
    assert LinkOptions.from_environment({"WEAVE_LINK_MAX_MESSAGE_BYTES": text}).max_message_bytes == count


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("node1:29500", ("node1", 29500)),
        ("10.0.0.1:1", ("10.0.0.1", 1)),
        ("[fe80::1%eth0]:65535", ("fe80::1%eth0", 65535)),
    ],
)
def test_the_rendezvous_is_host_and_port(address: str, parts: tuple[str, int]) -> None:
    assert LinkOptions(address=address).rendezvous == parts
    assert LinkOptions().rendezvous is None


def test_what_must_be_alike_is_compared_in_sentences() -> None:
    ours = LinkOptions()
    assert ours.disagreements(LinkOptions(timeout=1.0, linger=0.0, heartbeat=9.0, debug=True).to_agree()) == []
    assert ours.disagreements(LinkOptions(security="curve").to_agree()) == ["security: 'token' here, 'curve' there"]
    assert ours.disagreements(LinkOptions(credits=3).to_agree()) == ["credits: 2 here, 3 there"]
    assert ours.disagreements({**ours.to_agree(), "protocol": 2}) == ["protocol: 1 here, 2 there"]
    assert ours.disagreements({**ours.to_agree(), "new": 1}) == ["new: 'nothing' here, 1 there"]
    assert len(ours.disagreements({})) == len(ours.to_agree())


def test_a_head_fits_into_a_message() -> None:
    for most in (64 << 10, 1 << 20, 4 << 30):
        options = LinkOptions(max_message_bytes=most)
        assert 0 < options.head_bytes < most
        assert options.head_bytes <= 16 << 20
