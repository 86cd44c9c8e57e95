from __future__ import annotations

from tests.plugins.packages import packages

__all__ = ["packages"]
