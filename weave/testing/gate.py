"""`Gate`: a function target that holds its value until the test opens it."""

from __future__ import annotations

from typing import Any

from weave.graph.targets import FunctionTarget
from weave.testing.condition import Condition


class Gate(FunctionTarget):
    """Passes its one argument on, once it is open.

        gate = Gate("gate")
        needle.stitch(a.output(), gate.input()).stitch(gate.output(), b.input())
        ...
        await gate.until_arrived()   # a's value is here, b has not started
        gate.open()

    Args:
        name: the node's name.
        threaded: it blocks a thread, as a module or a plain function does; otherwise it is an async function that
            waits. A blocked thread can't be cancelled: open the gate before the run is to end.
        limit: seconds after which waiting gives up with an `AssertionError`.
    """

    def __init__(self, name: str = "gate", *, threaded: bool = False, limit: float = 10.0) -> None:
        super().__init__(name, self._block if threaded else self._wait)
        self.limit = limit
        self._condition = Condition()
        self._arrived = 0
        self._open = False
        self._error: BaseException | None = None

    @property
    def arrived(self) -> int:
        """How many values have come so far."""
        with self._condition.lock:
            return self._arrived

    def open(self) -> None:
        """Let through what waits, and whatever comes."""
        with self._condition.lock:
            self._open = True
            self._condition.changed()

    def fail(self, error: BaseException) -> None:
        """Have whatever waits, and whatever comes, raise that."""
        with self._condition.lock:
            self._error = error
            self._condition.changed()

    async def until_arrived(self, values: int = 1) -> None:
        """Wait, in a task, until so many values have come."""
        self._judge(await self._condition.until(lambda: self._arrived >= values, self.limit), values)

    def wait_arrived(self, values: int = 1) -> None:
        """Wait, in a thread, until so many values have come."""
        self._judge(self._condition.wait(lambda: self._arrived >= values, self.limit), values)

    def _judge(self, came: bool, values: int) -> None:
        if not came:
            raise AssertionError(
                f"gate {self.name!r}: {self.arrived} of {values} values arrived within {self.limit:g} s"
            )

    def _passable(self) -> bool:
        return self._open or self._error is not None

    def _arrive(self) -> None:
        with self._condition.lock:
            self._arrived += 1
            self._condition.changed()

    def _through(self, value: Any, passable: bool) -> Any:
        if self._error is not None:
            raise self._error
        if not passable:
            raise AssertionError(f"gate {self.name!r} was not opened within {self.limit:g} s")
        return value

    def _block(self, value: Any) -> Any:
        self._arrive()
        return self._through(value, self._condition.wait(self._passable, self.limit))

    async def _wait(self, value: Any) -> Any:
        self._arrive()
        return self._through(value, await self._condition.until(self._passable, self.limit))
