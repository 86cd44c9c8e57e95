"""What tests of concurrent graphs need: an order of events that is forced or recorded, never slept for.

- `Sequencer` lets named steps happen in one order, in whatever threads and tasks they are taken.
- `Gate` is a function target that holds its value until the test opens it.
- `Firings` writes down what a graph's runs do: which node started, delivered and ended, in which order and thread.

All of them work under a synchronous call, asyncio and trio, and give up after a time limit with an `AssertionError` that
says who waited for what, because a test that hangs says nothing.
"""

from weave.testing.firings import Firing, Firings
from weave.testing.gate import Gate
from weave.testing.sequencer import Sequencer

__all__ = ["Firing", "Firings", "Gate", "Sequencer"]
