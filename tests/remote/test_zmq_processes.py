"""The ZeroMQ transport between processes: killed, frozen, forked, and ones that simply end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import TCPStore

from tests.remote.hearing import PATIENCE, Calls, Hearer
from weave.remote.meeting import StoreMeeting
from weave.remote.options import LinkOptions
from weave.remote.zmq_transport import ZmqEndpoint, connect

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="signals and forks of POSIX")

Start = Callable[..., "subprocess.Popen[str]"]
NEVER = 10 * PATIENCE


@contextmanager
def rank_zero(**options: Any) -> Iterator[tuple[ZmqEndpoint, Hearer, Start]]:
    """This process as rank 0 of three, and how to start rank 1."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    end = connect(StoreMeeting(store, 0, 3, LinkOptions(timeout=PATIENCE, **options)))
    hearer = Hearer()
    end.start(hearer)
    started: list[subprocess.Popen[str]] = []

    def start(mode: str, *rest: str, **theirs: Any) -> subprocess.Popen[str]:
        environ = {key: value for key, value in os.environ.items() if not key.startswith("WEAVE_")}
        environ |= {"WEAVE_LINK_TIMEOUT": str(PATIENCE)}
        environ |= {f"WEAVE_LINK_{key.upper()}": str(value) for key, value in {**options, **theirs}.items()}
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.remote.rank_process", str(store.port), mode, *rest],
            cwd=Path(__file__).parents[2],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    try:
        yield end, hearer, start
    finally:
        end.close(0.0)
        for process in started:
            if process.poll() is None:
                process.kill()
            process.communicate()


def test_messages_between_processes_and_an_end_in_good_order() -> None:
    with rank_zero() as (end, hearer, start):
        process = start("echo", "3")
        sent = [[b"%d" % i, bytes([i]) * size] for i, size in enumerate((0, 1000, 8 << 20))]
        for frames in sent:
            end.send(1, frames)
        came = hearer.wait(3, losses=1)
        assert sorted(frames for _, frames in came) == sent
        assert hearer.losses == [(1, "rank 1 has closed its link")]
        assert process.communicate(timeout=PATIENCE) == ("end\n", None)
        assert process.returncode == 0


def test_a_killed_process_is_lost_without_waiting_for_a_heartbeat() -> None:
    with rank_zero(heartbeat=NEVER) as (_, hearer, start):
        process = start("waits")
        hearer.wait()
        process.kill()
        assert hearer.wait_lost()[0] == 1


def test_a_frozen_process_is_lost_by_its_silence_and_memory_comes_back() -> None:
    with rank_zero(heartbeat=0.3) as (end, hearer, start):
        process = start("echo", "1000")
        end.send(1, [b"now that we are connected both ways"])
        hearer.wait()
        process.send_signal(signal.SIGSTOP)
        gone = [Calls() for _ in range(3)]
        for calls in gone:
            end.send(1, [bytes(64 << 20)], gone=calls)  # more than the kernel takes
        assert hearer.wait_lost()[0] == 1
        for calls in gone:
            calls.wait()
        assert [calls.count for calls in gone] == [1] * 3


def test_a_killed_process_whose_child_still_holds_its_sockets_is_lost_by_its_silence() -> None:
    with rank_zero(heartbeat=0.3) as (end, hearer, start):
        process = start("forks")
        hearer.wait()
        end.send(1, [b"now that we are connected both ways"])
        child = int(hearer.wait(2)[1][1][0])
        try:
            process.kill()
            process.wait()
            os.kill(child, 0)  # the child is alive
            assert hearer.wait_lost()[0] == 1
        finally:
            os.kill(child, signal.SIGKILL)


def test_what_was_sent_gets_out_when_a_program_ends_without_closing() -> None:
    with rank_zero(linger=PATIENCE) as (_, hearer, start):
        process = start("leaves")
        came = hearer.wait(2, losses=1)
        assert sorted((frames[0], sum(map(len, frames))) for _, frames in came) == [
            (b"large", 5 + (16 << 20)),
            (b"small", 5),
        ]
        assert hearer.losses == [(1, "rank 1 has closed its link")]
        assert process.communicate(timeout=PATIENCE) == ("end\n", None)
        assert process.returncode == 0


def test_a_program_ends_though_nobody_takes_what_it_sent() -> None:
    with rank_zero() as (_, _, start):
        process = start("unheard", linger=0.2)
        assert process.communicate(timeout=PATIENCE) == ("end\n", None)
        assert process.returncode == 0
