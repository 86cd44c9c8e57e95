"""What an executor does wrong is the same error, whether or not somebody watches the run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plugins.hearing import Ear, drive, driver
from tests.plugins.test_third_party import OUT_OF_X, Board, Plugin
from tests.small import knot
from weave import CantResolveNodeDependenciesException, RunOptions
from weave.plugins import Firing, PluginSet


@driver
def test_a_port_that_is_none_is_none_where_somebody_watches_either(driver: str) -> None:
    """Something that is neither a name nor a port is like a name that nobody stitched, and says the same."""

    class Wrong:
        def __init__(self, port: Any) -> None:
            self.port = port

        def fire(self, firing: Firing) -> None:
            firing.deliver(self.port, 1)

    for wrong in (None, 3, b"x", ("output", "x")):
        plugins, said = PluginSet(Plugin(Wrong(wrong))), []
        for observers in ((), (ear := Ear(),)):
            stitched = knot(OUT_OF_X(Board("b")), options=RunOptions(observers=observers), plugins=plugins)
            with pytest.raises(CantResolveNodeDependenciesException, match="ended without delivering") as raised:
                drive(driver, stitched)
            said.append(str(raised.value))
        assert said[0] == said[1]
        assert ear.of("b") == ["node_started", "node_finished"]
