"""Is this call under `torch.utils.checkpoint`? Its recompute happens in backward, after the run, and sees no port.

Found by walking the Python frames between the port and the passage, because torch has no public question for it: the
re-entrant kind only turns the grad mode off, and the hooks of the other kind can lie under somebody else's.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Literal

import torch.utils.checkpoint

_FILE = torch.utils.checkpoint.__file__
_REENTRANT = torch.utils.checkpoint.CheckpointFunction.forward.__code__


def checkpointing(outermost: FrameType | None) -> Literal["", "reentrant", "plain"]:
    """The kind of checkpointing between here and the frame `outermost`, the re-entrant kind if there are both."""
    found: Literal["", "plain"] = ""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame is not outermost:
        code = frame.f_code
        if code is _REENTRANT:
            return "reentrant"
        if code.co_filename == _FILE:
            found = "plain"
        frame = frame.f_back
    return found
