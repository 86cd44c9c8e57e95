"""How other threads get a thread's attention that waits for sockets."""

from __future__ import annotations

import socket


class Wake:
    """Makes a poller return. Set from any thread, without waiting."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._set = False

    def fileno(self) -> int:
        """What to poll."""
        return self._read.fileno()

    def set(self) -> None:
        """Wake the thread. Whatever was queued before this is seen by it."""
        if not self._set:
            self._set = True
            try:
                self._write.send(b"w")
            except OSError:  # full: it will wake; closed: there is nobody to wake
                return

    def clear(self) -> None:
        """Awake. What is queued is to be looked at after this, or a word that comes in between would be lost."""
        try:
            while len(self._read.recv(256)) == 256:
                continue
        except BlockingIOError:
            pass
        self._set = False

    def close(self) -> None:
        """Give both ends back."""
        self._read.close()
        self._write.close()
