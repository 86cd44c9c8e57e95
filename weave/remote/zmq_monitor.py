"""What a socket's monitor says of its one connection, in four words."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import zmq
from zmq.utils.monitor import parse_monitor_message

from weave.remote.zmq_security import LATER

Change: TypeAlias = Literal["up", "absent", "refused", "down"]

_CHANGES: dict[int, Change] = {
    zmq.Event.HANDSHAKE_SUCCEEDED: "up",
    zmq.Event.CLOSED: "absent",
    zmq.Event.HANDSHAKE_FAILED_AUTH: "refused",
    zmq.Event.HANDSHAKE_FAILED_PROTOCOL: "down",
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL: "down",
    zmq.Event.DISCONNECTED: "down",
}
_EVENTS = 0
for _event in _CHANGES:
    _EVENTS |= _event


class Monitor:
    """Watches a socket that connects once. `socket` is readable when something has changed."""

    def __init__(self, watched: zmq.Socket[Any]) -> None:
        self._watched = watched
        self.socket = watched.get_monitor_socket(_EVENTS)

    def changes(self) -> list[Change]:
        """What has changed: it is up; nobody listens; it was refused; it has ended, by the other side or its silence."""
        found: list[Change] = []
        while True:
            try:
                message = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return found
            event = parse_monitor_message(message)
            change = _CHANGES.get(event["event"])
            if change == "refused" and event["value"] == LATER:
                change = "down"
            if change is not None:
                found.append(change)

    def close(self) -> None:
        """Stop, before the socket itself is closed."""
        self._watched.disable_monitor()
        self.socket.close(0)
