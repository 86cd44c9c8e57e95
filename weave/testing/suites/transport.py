"""`TransportSuite`: what a transport between ranks must do."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from weave.plugins.plugin_set import PluginSet
from weave.remote.local import Wires, meetings
from weave.remote.options import LinkOptions
from weave.spi.hooks import hookimpl
from weave.spi.records import TransportType
from weave.spi.transport import Endpoint, Meeting
from weave.testing.suites.base import PluginSuite, expect
from weave.testing.suites.ends import Goners, Rank, descriptors, ranks
from weave.testing.suites.leftovers import no_thread_left
from weave.testing.suites.transport_graphs import GraphChecks

MANY = 100
SIZES = (0, 1, 64 << 10, 5 << 20)


class TransportSuite(GraphChecks, PluginSuite):
    """Tests of a transport: of the one that a plugin's `weave_transports` gives, or of the one that `connect` makes.

        class TestPipes(TransportSuite):
            plugin = my_package

    All ranks are in this process. Override `world` where a transport needs meetings of its own, and `vanish` where a rank
    can be made to go without a word: then that is checked too.

    Attributes:
        scheme: which transport, where the plugin gives several.
    """

    scheme: str = ""

    @property
    def transport(self) -> TransportType:
        """What is under test."""
        if self.scheme:
            return self.registry.transport(self.scheme)
        given = [kind for record in self.plugins.records for kind in record.provides.get("weave_transports", ())]
        if given:
            expect(len(given) == 1, f"the plugin gives several transports, {given}: set `scheme` in the suite")
            return given[0]  # type: ignore[no-any-return]
        expect(
            type(self).connect is not TransportSuite.connect,
            "nothing to test: set `plugin` to what has weave_transports, or override connect(meeting)",
        )
        return TransportType(scheme="under-test", connect=self.connect)

    def connect(self, meeting: Meeting) -> Endpoint:
        """Make a rank's end. Override it to test a transport without a plugin."""
        made: Endpoint = self.transport.connect(meeting)
        return made

    def world(self, size: int) -> Sequence[Meeting]:
        """The meetings of so many ranks. Those of `run_local`, unless it is overridden."""
        return meetings(size, self.options, Wires())

    def vanish(self, endpoint: Endpoint) -> None:
        """Make a rank go without a word, as if its process were killed. Override it where that can be done here."""
        raise NotImplementedError

    @property
    def options(self) -> LinkOptions:
        """The settings that the suite's links have."""
        return LinkOptions(timeout=self.limit)

    @property
    def graph_plugins(self) -> PluginSet:
        """What the suite's graphs are tied with: the plugin, or one that is made of `connect`."""
        kind = self.transport
        return self.plugins if kind.scheme != "under-test" else PluginSet(_Given(kind))

    def _ranks(self, size: int, *, start: bool = True) -> Any:
        return ranks(self.world(size), self.connect, self.limit, start=start)

    # --- what is sent comes ---

    def test_messages_come_whole(self) -> None:
        """Frames of any size, none of them changed, joined or left out; empty ones too."""
        dice = random.Random(0)
        sent = [[dice.randbytes(size)] for size in SIZES]
        sent += [
            [dice.randbytes(size) for size in SIZES],
            [b"", b"", b"x", b""],
            [dice.randbytes(9) for _ in range(1000)],
        ]
        with self._ranks(2) as (first, second):
            for number, frames in enumerate(sent):
                first.send(1, b"%d" % number, *frames)
            came = {frames[0]: frames[1:] for _, frames in second.heard.until_messages(len(sent))}
            for number, frames in enumerate(sent):
                got = came.get(b"%d" % number)
                what = f"a message of {len(frames)} frames of {[len(frame) for frame in frames[:6]]} bytes"
                expect(got == frames, f"{what} came as {None if got is None else [len(frame) for frame in got[:6]]}")

    def test_frames_of_every_kind(self) -> None:
        """`bytes`, `bytearray`, `memoryview`, read-only or not, of items larger than a byte: what counts are the bytes."""
        numbers = memoryview(bytearray(range(240))).cast("I")
        given = [b"bytes", bytearray(b"bytearray"), memoryview(b"a view")[2:], memoryview(bytearray(b"x")), numbers]
        with self._ranks(2) as (first, second):
            first.send(1, *given)
            [(_, frames)] = second.heard.until_messages(1)
            expect(frames == [bytes(frame) for frame in given], f"frames of every kind came as {frames}")

    def test_every_message_comes_once_to_its_peer(self) -> None:
        """Three ranks send to one another: each gets what is for it, once, and is told from whom it is."""
        with self._ranks(3) as made:
            for number in range(MANY):
                for rank in made:
                    for peer in {0, 1, 2} - {rank.rank}:
                        rank.send(peer, b"%d to %d" % (rank.rank, peer), b"%d" % number, urgent=number % 3 == 0)
            for rank in made:
                came = rank.heard.until_messages(2 * MANY)
                due = [
                    (peer, [b"%d to %d" % (peer, rank.rank), b"%d" % number])
                    for peer in {0, 1, 2} - {rank.rank}
                    for number in range(MANY)
                ]
                expect(sorted(came) == sorted(due), f"rank {rank.rank} got other messages than were sent to it")
        for rank in made:
            expect(len(rank.heard.messages) == 2 * MANY, f"rank {rank.rank} got a message twice")

    def test_what_came_is_the_receivers(self) -> None:
        """Frames stay as they came while more comes, and when both ends are closed."""
        with self._ranks(2) as (first, second):
            for number in range(8):
                first.send(1, bytes([number]) * 10, bytes([number]) * (1 << 20))
            second.heard.until_messages(8)
        for (_, copies), views in zip(second.heard.messages, second.heard.kept, strict=True):
            expect(copies == [bytes(view) for view in views], "the memory of a message was used again")

    # --- nobody waits for a peer ---

    def test_nobody_waits_for_a_rank_that_is_late(self) -> None:
        """`connect`, `start` and `send` go on while the peer is not there; when it is, it gets all of it."""
        here, late = self.world(2)
        goners = Goners(self.limit)
        with ranks([here], self.connect, self.limit) as (first,):
            first.send(1, b"small", gone=goners.one())
            first.send(1, b"large", bytes(4 << 20), gone=goners.one())
            first.send(1, b"urgent", urgent=True, gone=goners.one())
            with ranks([late], self.connect, self.limit, start=False) as (second,):
                first.send(1, b"before it hears", gone=goners.one())
                second.start()
                came = {frames[0] for _, frames in second.heard.until_messages(4)}
                expect(came == {b"small", b"large", b"urgent", b"before it hears"}, f"a late rank got {came}")
                goners.until_all("when the late rank was there")

    def test_both_send_at_once(self) -> None:
        """Much goes both ways, with urgent words beside it, and neither waits for the other."""
        with self._ranks(2) as made:

            def go(rank: Rank) -> None:
                for number in range(6):
                    rank.end.send(1 - rank.rank, [b"%d" % number, bytes(3 << 20)])
                    rank.end.send(1 - rank.rank, [b"word %d" % number], urgent=True)

            self._in_threads([lambda rank=rank: go(rank) for rank in made])
            for rank in made:
                came = sorted(frames[0] for _, frames in rank.heard.until_messages(12))
                due = sorted([b"%d" % n for n in range(6)] + [b"word %d" % n for n in range(6)])
                expect(came == due, f"rank {rank.rank} got {came}")

    def test_threads_send_at_once(self) -> None:
        """Eight threads send from one end: their messages don't get into one another."""
        with self._ranks(2) as (first, second):

            def go(thread: int) -> None:
                for number in range(20):
                    body = bytes([thread * 20 + number])
                    first.end.send(1, [body, body * 70_000, body * (number * 1000)], urgent=number % 4 == 0)

            self._in_threads([lambda thread=thread: go(thread) for thread in range(8)])
            came = second.heard.until_messages(160)
            for _, frames in came:
                body = frames[0]
                due = [body, body * 70_000, body * (ord(body) % 20 * 1000)]
                expect(frames == due, "frames of two messages, sent by two threads, came as one message")
            expect(len({frames[0] for _, frames in came}) == 160, "a message came twice")

    def test_an_answer_from_where_it_came(self) -> None:
        """`came` and `gone` may send: what hears a message answers at once, back and forth."""
        with self._ranks(2) as made:
            for rank in made:

                def answer(peer: int, frames: list[bytes], end: Endpoint = rank.end) -> None:
                    count = int(frames[0])
                    if count < MANY:
                        thanks = partial(end.send, peer, [b"%d" % MANY], urgent=True)
                        end.send(peer, [b"%d" % (count + 1)], gone=thanks if count % 10 == 0 else None)

                rank.heard.answer = answer
            made[0].send(1, b"0")
            for rank, due in zip(made, (MANY // 2 + 1, MANY // 2 + 1 + MANY // 10), strict=True):
                came = rank.heard.until_messages(due if rank.rank == 0 else MANY // 2)
                expect(len(came) >= MANY // 2, f"of {MANY} messages back and forth rank {rank.rank} got {len(came)}")

    # --- gone ---

    def test_gone_is_said_once_and_the_memory_is_free(self) -> None:
        """When `gone` is called, the memory may be written to: what comes is still what was sent."""
        goners = Goners(self.limit)
        with self._ranks(2) as (first, second):
            for number in range(20):
                size = (3, 100_000, 3 << 20)[number % 3]
                buffer = bytearray(b"\1" * size)

                def overwrite(buffer: bytearray = buffer, size: int = size) -> None:
                    memoryview(buffer)[:] = bytes(size)

                first.send(1, b"%d" % number, memoryview(buffer), urgent=size == 3, gone=goners.one(overwrite))
            came = second.heard.until_messages(20)
            goners.until_all("after everything had come")
        for _, (_, body) in came:
            expect(body.count(b"\1") == len(body), "`gone` was called while the memory was still needed")
        goners.until_all("after both were closed")

    def test_hears_that_raise(self) -> None:
        """What `came`, `lost` or `gone` raise is logged perhaps, and harms nothing."""

        def fails(*_: Any) -> None:
            raise RuntimeError("raised on purpose, by the suite's hearer")

        with self._ranks(3) as (first, second, third):
            second.heard.answer = fails
            first.send(1, b"one", gone=fails)
            second.heard.until_messages(1)
            second.heard.lost = fails
            third.send(0, b"hello")
            third.send(1, b"two")
            first.heard.until_messages(1)
            second.heard.until_messages(2)
            third.close(self.limit)
            first.heard.until_lost(2)
            first.send(1, b"three", urgent=True)
            first.send(1, b"four")
            came = {frames[0] for _, frames in second.heard.until_messages(4)}
            expect(came == {b"one", b"two", b"three", b"four"}, f"after its hearer had raised, it heard {came}")

    # --- ends ---

    def test_closing_delivers_what_was_sent(self) -> None:
        """An end that is closed with time to linger gets out what it was given."""
        goners = Goners(self.limit)
        with self._ranks(2) as (first, second):
            for number in range(40):
                size = 10 if number % 4 else 1 << 20
                first.send(1, b"%d" % number, bytes(size), urgent=number % 5 == 0, gone=goners.one())
            first.close(self.limit)
            came = {frames[0] for _, frames in second.heard.until_messages(40)}
            expect(len(came) == 40, "what was sent before closing did not come")
            goners.until_all("when the end was closed")

    def test_closing_at_once(self) -> None:
        """Without time to linger messages come whole or not at all, and `gone` is called for all; also for a rank that
        never came."""
        goners = Goners(self.limit)
        here, there, _ = self.world(3)
        with ranks([here, there], self.connect, self.limit) as (first, second):
            for number in range(20):
                first.send(1, b"%d" % number, bytes([number]) * (1 << 20), gone=goners.one())
                first.send(2, b"nobody is there", urgent=number % 2 == 0, gone=goners.one())
            first.close(0.0)
            goners.until_all("when the end was closed at once")
            first.send(1, b"late", gone=goners.one())
            goners.until_all("for a message that was sent after closing")
        for _, frames in second.heard.messages:
            whole = len(frames) == 2 and frames[1] == bytes([int(frames[0])]) * (1 << 20)
            expect(whole, "part of a message came from an end that was closed")

    def test_closing_again(self) -> None:
        """Closing is idempotent, from several threads at once too."""
        with self._ranks(2) as (first, second):
            first.send(1, b"x")
            second.heard.until_messages(1)
            self._in_threads([lambda: first.end.close(1.0)] * 4)
            first.close(1.0)

    def test_nothing_is_left(self) -> None:
        """After closing there is no thread and no file descriptor that was not there before."""

        def go() -> None:
            with self._ranks(3) as made:
                for rank in made:
                    for peer in {0, 1, 2} - {rank.rank}:
                        rank.send(peer, b"x", bytes(1 << 20))
                        rank.send(peer, b"word", urgent=True)
                for rank in made:
                    rank.heard.until_messages(4)

        go()  # what a library opens once for a process is open now
        gc.collect()
        before = descriptors()
        with no_thread_left("closed endpoints", self.limit):
            go()
            go()
        until = time.monotonic() + self.limit
        while (more := self._opened_since(before)) and time.monotonic() < until:
            time.sleep(0.05)  # something else of this process may have files open for a moment
        expect(not more, f"closed endpoints left file descriptors behind: {', '.join(more)}")

    def _opened_since(self, before: dict[str, str] | None) -> list[str]:
        gc.collect()
        now = descriptors()
        if before is None or now is None:
            return []
        return sorted(what for number, what in now.items() if number not in before)

    def test_nothing_is_told_after_closing(self) -> None:
        """Who has closed hears nothing more, neither messages nor losses."""
        with self._ranks(3) as (first, second, third):
            for rank in (second, third):
                rank.send(0, b"x")
            first.heard.until_messages(2)
            first.send(1, b"x")
            second.heard.until_messages(1)
            first.close(self.limit)
            told = first.heard.told
            goners = Goners(self.limit)
            for number in range(10):
                second.send(0, b"%d" % number, urgent=number % 2 == 0, gone=goners.one())
            second.send(2, b"done")
            third.heard.until_messages(1)
            second.close(1.0)
            third.close(1.0)
            goners.until_all("for messages to a rank that has closed")
            expect(first.heard.told == told, f"it was told after it had closed: {first.heard.told}, and before {told}")

    def test_a_peer_that_closes_is_lost(self) -> None:
        """The others hear of it once, after all that it had sent, and go on with one another."""
        with self._ranks(3) as (first, second, third):
            for rank in (first, third):
                rank.send(1, b"hello")
            second.heard.until_messages(2)
            for number in range(20):
                for peer in (0, 2):
                    second.send(peer, b"%d" % number, bytes(200_000), urgent=number % 2 == 0)
            second.close(self.limit)
            for rank in (first, third):
                rank.heard.until_lost(1)
                count = sum(peer == 1 for peer, _ in rank.heard.messages)
                expect(
                    count == 20, f"rank {rank.rank} heard that rank 1 is lost when {count} of its 20 messages had come"
                )
            first.send(2, b"still here")
            third.heard.until_messages(21)
            third.send(0, b"here too")
            first.heard.until_messages(21)
        self._lost_once([first, third], 1)
        expect(not second.heard.lost_peers, "an end that was closed was told that others are lost")

    def test_a_peer_that_vanishes_is_lost(self) -> None:
        """A peer that goes without a word is lost to the others, once; nothing more of it comes."""
        if type(self).vanish is TransportSuite.vanish:
            pytest.skip("vanish(endpoint) is not overridden")
        with self._ranks(3) as (first, second, third):
            for rank in (first, third):
                rank.send(1, b"hello")
                second.send(rank.rank, b"hello")
            second.heard.until_messages(2)
            for rank in (first, third):
                rank.heard.until_messages(1)
            self.vanish(second.end)
            for rank in (first, third):
                rank.heard.until_lost(1)
            first.send(2, b"still here")
            third.heard.until_messages(2)
        self._lost_once([first, third], 1)

    def test_sending_to_a_lost_peer(self) -> None:
        """It is no error, and `gone` is called; also for what was under way when the peer was lost."""
        goners = Goners(self.limit)
        with self._ranks(2) as (first, second):
            first.send(1, b"hello")
            second.heard.until_messages(1)
            for _ in range(10):
                first.send(1, bytes(4 << 20), gone=goners.one())
            second.close(0.0)
            first.heard.until_lost(1)
            for number in range(10):
                first.send(1, b"x", bytes(100_000), urgent=number % 2 == 0, gone=goners.one())
            goners.until_all("when the peer was lost")
        goners.until_all("after both were closed")
        self._lost_once([first], 1)

    def _lost_once(self, of: Sequence[Rank], lost: int) -> None:
        for rank in of:
            heard = rank.heard
            count = heard.lost_peers.count(lost)
            expect(count == 1, f"rank {rank.rank} was told {count} times that rank {lost} is lost")
            expect(not heard.after_loss, f"something came from rank {lost} after it was lost")

    def _in_threads(self, functions: Sequence[Any]) -> None:
        raised: list[BaseException] = []

        def call(function: Any) -> None:
            try:
                function()
            except BaseException as error:
                raised.append(error)

        threads = [threading.Thread(target=call, args=(f,), name="weave-suite", daemon=True) for f in functions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * self.limit)
            expect(not thread.is_alive(), f"calls in several threads were not over after {2 * self.limit:g} s")
        if raised:
            raise raised[0]


class _Given:
    """A transport that no plugin gives, as one."""

    def __init__(self, kind: TransportType) -> None:
        self._kind = kind

    @hookimpl
    def weave_transports(self) -> Sequence[TransportType]:
        return [self._kind]
