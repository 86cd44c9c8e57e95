"""The transport between processes passes the suite, here with all ranks in one process."""

from __future__ import annotations

from weave.testing import TransportSuite


class TestZmq(TransportSuite):
    scheme = "zmq"
