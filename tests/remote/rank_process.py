"""A rank in a process of its own: `python -m tests.remote.rank_process PORT MODE`. It says what it does on its output."""

from __future__ import annotations

import os
import sys
import time

from tests.remote.hearing import Calls, Hearer
from weave.remote.meeting import meeting_at
from weave.remote.options import LinkOptions
from weave.remote.zmq_transport import connect


def main() -> None:
    port, mode, *rest = sys.argv[1:]
    options = LinkOptions.from_environment()
    options = LinkOptions(
        address=f"127.0.0.1:{port}", timeout=options.timeout, heartbeat=options.heartbeat, linger=options.linger
    )
    hearer = Hearer()
    end = connect(meeting_at(1, 3, options))
    end.start(hearer)
    if mode == "echo":
        for count in range(1, int(rest[0]) + 1):
            hearer.wait(count)
            end.send(0, hearer.came_frames[count - 1][1])
        end.close(60.0)
    elif mode == "waits":
        end.send(0, [b"here"])
        time.sleep(600)
    elif mode == "forks":
        end.send(0, [b"here"])
        hearer.wait()
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        end.send(0, [b"%d" % child])
        time.sleep(600)
    elif mode == "leaves":  # without closing
        gone = Calls()
        end.send(0, [b"large", bytes(16 << 20)], gone=gone)
        end.send(0, [b"small"])
    elif mode == "unheard":  # what it sends to a rank that never comes can't get out
        end.send(2, [bytes(1 << 20)])
    print("end", flush=True)


if __name__ == "__main__":
    main()
