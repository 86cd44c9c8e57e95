"""The link's messages: what is packed comes back, and nothing else is a message."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.remote import fuzz
from weave.errors import WireException
from weave.remote import wire
from weave.remote.options import LinkOptions
from weave.remote.wire import Abort, Bye, RunKey, Taken, Tie, Untie, Value, Want, pack, unpack

RUN = RunKey("k", 3, None)
MESSAGES = [
    Tie("g", [(0, 1, "hidden"), (1, 0, "grad")], LinkOptions().to_agree()),
    Untie("g", 4),
    Value("g", 7, RunKey(None, 0, 12), b"\x00head"),
    Want("g", 0, RUN),
    Taken("g", 0, RunKey(-5, 0, None)),
    Abort("g", RUN, 3, "student", "ValueError", "no\nsuch thing", True),
    Bye(0),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_comes_back(message: Any) -> None:
    data = pack(message)
    back = unpack(data)
    assert type(back) is type(message)
    assert back == message
    assert unpack(bytearray(data)) == unpack(memoryview(data)) == message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_that_is_cut_or_goes_on_is_none(message: Any) -> None:
    data = pack(message)
    for end in range(len(data)):
        with pytest.raises(WireException):
            unpack(data[:end])
    with pytest.raises(WireException):
        unpack(data + b"\xc0")


def test_each_field_is_checked() -> None:
    """Every field of every message, replaced by what it can't be."""
    for message in MESSAGES:
        parts = msgspec.msgpack.decode(pack(message))
        for place in range(len(parts)):
            for wrong in ([], {}, 1.5, -1, "é" * 5000, b"", True, None, 1 << 63, 99):
                tried = [*parts[:place], wrong, *parts[place + 1 :]]
                try:
                    back = unpack(msgspec.msgpack.encode(tried))
                except WireException:
                    continue
                # What is taken is a message with that very field: nothing was bent to fit.
                assert msgspec.msgpack.decode(pack(back)) == tried, (message, place, wrong)
        with pytest.raises(WireException):
            unpack(msgspec.msgpack.encode([*parts, 0]))
        with pytest.raises(WireException):
            unpack(msgspec.msgpack.encode(parts[:-1] if len(parts) > 1 else []))


@pytest.mark.parametrize("key", [True, 1 << 63, "x" * 257, "\ud800"])
def test_a_run_key_that_cannot_travel_is_refused_where_it_is_made(key: Any) -> None:
    with pytest.raises(ValueError, match="run_key="):
        RunKey(key, 0, None)


def test_runs_are_told_apart() -> None:
    runs = {RunKey(None, 0, None), RunKey("0", 0, None), RunKey(0, 0, None), RunKey(None, 0, 0), RunKey(None, 1, None)}
    assert len(runs) == 5
    assert RunKey(None, 0, 0) in runs


@pytest.mark.parametrize("edges", [[(0, 1, "\ud800")], [(0, 1, "x" * 1025)], [(-1, 0, "x")]])
def test_names_that_cannot_travel_are_refused_when_a_graph_is_tied(edges: Any) -> None:
    with pytest.raises(WireException, match="Tie of the graph 'g' can't be sent"):
        pack(Tie("g", edges, {}))


def test_the_word_of_a_failure_always_gets_through() -> None:
    back = unpack(pack(Abort("g", RUN, 0, "n" * 9999, "\udfff", "\ud800" + "é" * 99999, False)))
    assert isinstance(back, Abort)
    assert (len(back.node), back.kind, back.text[:2], len(back.text)) == (
        wire.LONGEST_KEY,
        "?",
        "?é",
        wire.LONGEST_TEXT,
    )


def test_what_is_declared_is_not_allocated() -> None:
    declared = [
        b"\xdd\xff\xff\xff\xff",  # four milliard elements
        b"\x94\x03\xdb\xff\xff\xff\xff",  # a name of four gigabytes
        b"\x95\x03\xa1g\x00\x93\xc0\x00\xc0\xc6\xff\xff\xff\xff",  # such a head
        b"\x94\x01\xa1g\xdd\xff\xff\xff\xff\x00",  # so many edges
        b"\x91" * 100_000,  # so deep
    ]
    tracemalloc.start()
    try:
        for data in declared:
            with pytest.raises(WireException):
                unpack(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_frames_are_counted_and_measured() -> None:
    most = LinkOptions(max_frames=2, max_message_bytes=1 << 16)
    wire.check_frames([b"", bytes(1 << 16)], most)
    for frames in ([], [b""] * 3, [bytes((1 << 16) + 1)]):
        with pytest.raises(WireException):
            wire.check_frames(frames, most)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    fuzz.try_message(data)


@settings(max_examples=300)
@given(st.sampled_from(MESSAGES), fuzz.mutations)
def test_mutated_messages(message: Any, mutation: fuzz.Mutation) -> None:
    fuzz.try_message(fuzz.mutated(pack(message), mutation))
