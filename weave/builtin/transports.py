"""The built-in transports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weave.remote.local import LOCAL
from weave.spi.hooks import hookimpl
from weave.spi.records import TransportType


def _zmq(meeting: Any) -> Any:
    from weave.remote.zmq_transport import connect  # pyzmq is loaded where a link is made

    return connect(meeting)


@hookimpl
def weave_transports() -> Iterable[TransportType]:
    """ZeroMQ between processes, wires that are made up between threads."""
    return [TransportType(scheme="zmq", connect=_zmq, capabilities=frozenset({"processes"})), LOCAL]
