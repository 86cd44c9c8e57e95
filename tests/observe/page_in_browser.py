"""A browser, found or its lack explained; a page open in it, with what the tests ask of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from tests.observe.page_samples import broken, diamond, ranks, simulated, trace
from weave.observe.trace import Trace

REMEDY = "the page's tests need {}: pip install --group test; apt-get install chromium, or WEAVE_CHROMIUM=its path"

WICKED = "</script><img src=x onerror=alert(1)>"

# Draws as ever, and remembers what is written on each canvas since it was last wiped.
HEAR = """
const { fillText, clearRect } = CanvasRenderingContext2D.prototype;
window.written = { timeline: [], graph: [] };
const of = (ctx) => window.written[ctx.canvas.parentElement?.id];
Object.assign(CanvasRenderingContext2D.prototype, {
  fillText(text, ...at) { of(this)?.push(text); return fillText.call(this, text, ...at); },
  clearRect(...at) { if (of(this)) of(this).length = 0; return clearRect.call(this, ...at); },
});
"""


def missing(what: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(REMEDY.format(what))
    pytest.skip(REMEDY.format(what))


def chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("WEAVE_CHROMIUM") or next((path for path in map(shutil.which, names) if path), None)


def large() -> Trace:
    """5 000 nodes, of which one has failed in the middle."""
    run = simulated(5000, 4, seed=1, near=40)
    run.nodes[2500].status, run.nodes[2500].error = "failed", "too large"
    return trace(run)


SAMPLES: dict[str, Callable[[], Trace]] = {
    "diamond": lambda: trace(diamond()),
    "broken": lambda: trace(broken()),
    "ranks": ranks,
    "sixty": lambda: trace(simulated(60, 3, seed=3, awaited=0.25)),
    "large": large,
    "wicked": lambda: trace(diamond(names=("tokens", WICKED, "student", "loss")), program=WICKED),
}


class Page:
    """A page that is open, with what the tests ask of it."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.mouse, self.keyboard, self.locator = page.mouse, page.keyboard, page.locator
        self.said: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    def js(self, expression: str, argument: Any = None) -> Any:
        return self.page.evaluate(expression, argument)

    def until(self, condition: str) -> None:
        """Wait, for some frames. (`wait_for_function` evaluates text in the page, which its policy forbids.)"""
        assert self.js(
            """() => new Promise((done) => {
              let left = 600;
              const look = () => (CONDITION ? done(true) : left-- ? requestAnimationFrame(look) : done(false));
              look();
            })""".replace("CONDITION", condition)
        ), condition

    def of(self, name: str) -> Any:
        """A field of `weavePage` once everything is drawn."""
        return self.js("(name) => new Promise((done) => requestAnimationFrame(() => done(weavePage[name])))", name)

    @property
    def hovered(self) -> str | None:
        return self.of("hovered")

    @property
    def tip(self) -> str:
        tip = self.locator("#tip")
        return str(tip.inner_text()) if tip.is_visible() else ""

    def written(self, pane: str) -> list[str]:
        self.of("drawn")
        return list(self.js("(pane) => written[pane]", pane))

    def at(self, name: str, pane: str) -> tuple[float, float]:
        self.of("drawn")
        point = self.js("([name, pane]) => weavePage.at(name)[pane]", [name, pane])
        assert point, f"{name} is not to be seen in the {pane}"
        return point["x"], point["y"]

    def point(self, name: str, pane: str) -> None:
        self.mouse.move(*self.at(name, pane), steps=2)

    def picture(self, pane: str) -> str:
        self.of("drawn")
        return str(self.js("(pane) => document.querySelector(`#${pane} canvas`).toDataURL()", pane))

    def pixels(self, pane: str, colour: tuple[int, int, int]) -> int:
        """How many pixels of a pane have a colour, as nearly as smoothed edges allow."""
        self.of("drawn")
        return int(
            self.js(
                """([pane, colour]) => {
                  const canvas = document.querySelector(`#${pane} canvas`);
                  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
                  copy.drawImage(canvas, 0, 0);
                  const all = copy.getImageData(0, 0, canvas.width, canvas.height).data;
                  let count = 0;
                  for (let i = 0; i < all.length; i += 4) {
                    count += colour.every((value, j) => Math.abs(all[i + j] - value) < 8);
                  }
                  return count;
                }""",
                [pane, list(colour)],
            )
        )

    def span(self) -> float:
        shown = self.of("range")
        return float(shown["end"] - shown["begin"])
