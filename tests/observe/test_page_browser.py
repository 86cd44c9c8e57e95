"""The page in a browser: what it shows, and how it answers to mouse and keyboard.

The texts on the canvases are heard from the calls that draw them; where lines and colours matter, pixels are read.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.observe.page_samples import broken, diamond, ranks, simulated, trace
from weave.observe.page import write_page
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


def _missing(what: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(REMEDY.format(what))
    pytest.skip(REMEDY.format(what))


def _chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("WEAVE_CHROMIUM") or next((path for path in map(shutil.which, names) if path), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright")
    if (path := _chromium()) is None:
        _missing("Chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path)
        yield running
        running.close()


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


Opener = Callable[..., Page]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The file of a sample, written once."""
    folder = tmp_path_factory.mktemp("pages")

    def write(name: str) -> Path:
        path = folder / f"{name}.html"
        return path if path.exists() else write_page(SAMPLES[name](), path)

    return write


@pytest.fixture(scope="module")
def tab(browser: Any) -> Page:
    """One for all tests: to open another takes longer than most of them."""
    context = browser.new_context(viewport={"width": 1100, "height": 700})
    context.add_init_script(HEAR)
    return Page(context.new_page())


@pytest.fixture
def opened(tab: Page, written: Callable[[str], Path]) -> Iterator[Opener]:
    def open_page(name: str, scheme: str = "light") -> Page:
        tab.mouse.move(0, 0)
        tab.page.emulate_media(color_scheme=scheme)
        tab.asked.clear()
        tab.page.goto(written(name).as_uri())
        tab.page.wait_for_function("window.weavePage && weavePage.drawn.boxes > 0")
        return tab

    tab.said.clear()
    yield open_page
    assert tab.said == [], "a word on the console"
    assert [url for url in tab.asked if not url.startswith("data:")] == [tab.page.url]


# --------------------------------------------------------------------------------------------- what is to be seen


def test_a_diamond_shows_its_four_nodes_twice_and_its_figures(opened: Opener) -> None:
    page = opened("diamond")
    assert page.of("counts") == {"items": 4, "boxes": 4, "runs": 1}
    assert page.of("drawn") == {"bars": 4, "waits": 4, "arrows": 0, "boxes": 4, "edges": 4}
    names = {"tokens", "teacher", "student", "loss"}
    assert names <= set(page.written("timeline"))
    assert names <= set(page.written("graph"))
    assert {"MainThread", "worker 1", "worker 2"} <= set(page.written("timeline"))
    facts = page.locator("#facts").inner_text().split("\n")
    figures = dict(zip(facts[::2], facts[1::2], strict=True))
    assert figures == {
        "status": "✓ ok", "duration": "1.00 ms", "critical path": "900 µs", "busy": "920 µs", "compute": "1.39 ms",
        "waited": "110 µs", "overlap": "–", "nodes": "4", "bytes": "64.0 KiB",
    }  # fmt: skip
    assert page.page.title() == "weave · examples/sample.py"
    assert not page.locator("#choosing").is_visible()


def test_the_policy_forbids_what_the_page_never_does(browser: Any, written: Callable[[str], Path]) -> None:
    page = browser.new_page()
    page.goto(written("diamond").as_uri())
    came = page.evaluate(
        """() => {
          window.forbidden = new Set();
          document.addEventListener("securitypolicyviolation", (event) => forbidden.add(event.effectiveDirective));
          const script = document.createElement("script");
          script.textContent = "window.broken = true";
          document.body.append(script);
          const image = document.createElement("img");
          image.setAttribute("onerror", "window.broken = true");
          image.src = "http://127.0.0.1:9/";
          document.body.append(image);
          return fetch("http://127.0.0.1:9/").then(() => "came", () => "refused");
        }"""
    )
    assert came == "refused"
    for directive in ("script-src-elem", "script-src-attr", "img-src", "connect-src"):
        page.wait_for_function("(directive) => forbidden.has(directive)", arg=directive)
    assert page.evaluate("window.broken") is None
    page.close()


def test_names_with_markup_are_shown_as_text(opened: Opener) -> None:
    page = opened("wicked")
    assert page.locator("img").count() == 0
    assert WICKED in page.written("timeline")
    assert page.locator("#program").inner_text() == WICKED
    page.point(WICKED, "timeline")
    assert page.hovered == WICKED
    assert page.tip.startswith(WICKED)
    page.point("loss", "graph")
    assert f"{WICKED} output()" in page.tip
    assert page.locator("img").count() == 0


def test_failed_and_cancelled_nodes_are_told_by_more_than_colour(opened: Opener) -> None:
    page = opened("broken")
    for pane in ("timeline", "graph"):
        assert {"✕ teacher", "⊘ student"} <= set(page.written(pane)), pane
    assert page.locator("#facts dd").first.inner_text() == "✕ failed"
    assert "NodeException: node 'teacher' failed" in page.locator("#note").inner_text()
    assert "✕ failed" in page.locator("#legend").inner_text()
    page.point("teacher", "timeline")
    assert "ValueError: the batch is empty" in page.tip
    page.point("loss", "graph")
    assert "never became ready" in page.tip


def test_merged_ranks_are_groups_with_arrows_and_runs_can_be_chosen(opened: Opener) -> None:
    page = opened("ranks")
    assert page.of("counts") == {"items": 5, "boxes": 5, "runs": 2}
    assert page.of("drawn")["arrows"] == 1
    titles = [text for text in page.written("timeline") if text.startswith("rank ")]
    assert titles == ["rank 0 · run 000000000000", "rank 1 · run 111111111111"]
    assert [text for text in page.written("graph") if text.startswith("rank ")] == ["rank 0", "rank 1"]
    choices = page.locator("#views option").all_inner_texts()
    assert choices[-1] == "all 3 runs"
    alone = next(place for place, choice in enumerate(choices) if choice.startswith("abcdefabcdef"))
    page.locator("#views").select_option(str(alone))
    assert page.of("counts") == {"items": 4, "boxes": 4, "runs": 1}
    assert {"tokens", "teacher"} <= set(page.written("timeline"))
    page.locator("#timeline canvas").focus()
    page.keyboard.press("]")
    assert page.of("counts")["runs"] == (3 if alone == 1 else 2)


def test_light_and_dark_follow_the_system_and_the_toggle(opened: Opener) -> None:
    paper, green = (255, 255, 255), (0x3D, 0xB8, 0x92)
    page = opened("diamond", scheme="dark")
    assert page.of("theme") == "dark"
    assert page.pixels("timeline", paper) < 1_000
    assert page.pixels("graph", green) > 100
    dark = page.picture("timeline")
    page = opened("diamond", scheme="light")
    assert page.of("theme") == "light"
    assert page.pixels("timeline", paper) > 50_000
    assert page.pixels("graph", green) > 100
    page.locator("#theme").click()
    assert page.of("theme") == "dark"
    page.mouse.move(5, 5)
    assert page.picture("timeline") == dark
    page.keyboard.press("t")
    assert page.of("theme") == "light"
    page.page.emulate_media(color_scheme="dark")
    page.page.wait_for_function("weavePage.theme === 'dark'")


# --------------------------------------------------------------------------------------------- the mouse


@pytest.mark.parametrize(("pane", "other"), [("timeline", "graph"), ("graph", "timeline")])
def test_what_is_pointed_at_is_marked_in_both_pictures_and_explained(opened: Opener, pane: str, other: str) -> None:
    page = opened("diamond")
    plain = page.picture(other)
    page.point("loss", pane)
    assert page.hovered == "loss"
    assert page.picture(other) != plain
    marked = page.picture(other)
    tip = page.tip
    for words in ("function mse_loss · MainThread", "critical path", "150 µs", "40.0 µs from ready to started",
                  "from student", "teacher output()", "input('student')", "float32[8, 16, 32]", "16.0 KiB"):  # fmt: skip
        assert words in tip, words
    page.point("tokens", pane)
    assert page.hovered == "tokens"
    assert page.picture(other) not in (plain, marked)
    assert "ready without another node" in page.tip
    page.mouse.move(5, 5)
    assert page.hovered is None
    assert page.tip == ""
    assert page.picture(other) == plain


def test_a_click_keeps_the_node_and_escape_lets_it_go(opened: Opener) -> None:
    page = opened("diamond")
    page.mouse.click(*page.at("teacher", "graph"))
    page.mouse.move(5, 5)
    assert page.hovered == "teacher"
    assert "490 µs" in page.tip
    page.keyboard.press("Escape")
    assert page.hovered is None


def test_the_wheel_zooms_about_the_mouse_and_dragging_pans(opened: Opener) -> None:
    page = opened("diamond")
    x, y = page.at("student", "timeline")
    page.mouse.move(x, y)
    whole = page.span()
    page.mouse.wheel(0, -600)
    assert page.span() < whole / 2
    assert page.at("student", "timeline")[0] == pytest.approx(x, abs=4)  # a mouse is on whole pixels
    x = page.at("student", "timeline")[0]
    before = page.of("range")
    page.mouse.move(x, y + 250)  # where no bar is
    page.mouse.down()
    page.mouse.move(x - 60, y + 250, steps=3)
    page.mouse.up()
    after = page.of("range")
    assert after["begin"] > before["begin"]
    assert after["end"] - after["begin"] == pytest.approx(before["end"] - before["begin"])
    assert page.at("student", "timeline")[0] == pytest.approx(x - 60, abs=2)
    assert page.hovered is None
    page.mouse.dblclick(x, y + 250)
    assert page.span() == pytest.approx(whole)


def test_the_graph_zooms_and_pans_by_itself(opened: Opener) -> None:
    page = opened("sixty")
    x, y = page.at("layers.5.q", "graph")
    before, span = page.of("eye"), page.span()
    page.mouse.move(x, y)
    page.mouse.wheel(0, -700)
    assert page.of("eye")["scale"] > 3 * before["scale"]
    assert page.at("layers.5.q", "graph") == pytest.approx((x, y), abs=6)
    assert page.of("drawn")["boxes"] < 60
    x, y = page.at("layers.5.q", "graph")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 40, y + 30, steps=3)
    page.mouse.up()
    assert page.at("layers.5.q", "graph") == pytest.approx((x + 40, y + 30), abs=2)
    assert page.span() == span


# --------------------------------------------------------------------------------------------- the keyboard


def test_keys_zoom_pan_and_fit(opened: Opener) -> None:
    page = opened("diamond")
    page.locator("#timeline canvas").focus()
    whole = page.span()
    page.keyboard.press("+")
    page.keyboard.press("+")
    near = page.of("range")
    assert page.span() == pytest.approx(whole / 2.25, rel=0.01)
    page.keyboard.press("ArrowRight")
    assert page.of("range")["begin"] > near["begin"]
    assert page.span() == pytest.approx(whole / 2.25, rel=0.01)
    page.keyboard.press("ArrowLeft")
    assert page.of("range")["begin"] == pytest.approx(near["begin"])
    page.keyboard.press("-")
    assert page.span() == pytest.approx(whole / 1.5, rel=0.01)
    page.keyboard.press("0")
    assert page.span() == pytest.approx(whole)
    page.locator("#graph canvas").focus()
    eye = page.of("eye")
    page.keyboard.press("+")
    page.keyboard.press("ArrowDown")
    assert page.of("eye")["scale"] == pytest.approx(1.5 * eye["scale"])
    assert page.of("eye")["y"] > eye["y"]
    assert page.span() == pytest.approx(whole)


def test_keys_step_through_the_nodes_by_their_start(opened: Opener) -> None:
    page = opened("diamond")
    seen = []
    for key in "jjjjjk":
        page.keyboard.press(key)
        seen.append(page.hovered)
    assert seen == ["tokens", "teacher", "student", "loss", "tokens", "loss"]
    assert page.tip.startswith("loss")
    assert "loss, ok, took 150 µs, waited 40.0 µs, last input from student" in page.locator("#said").inner_text()
    whole = page.span()
    page.keyboard.press("Enter")
    assert page.hovered == "loss"
    assert page.span() < whole
    page.keyboard.press("Escape")
    assert page.hovered is None


def test_keys_open_help_and_mark_the_critical_path(opened: Opener) -> None:
    page = opened("diamond")
    page.keyboard.press("?")
    assert page.locator("#helping").is_visible()
    page.keyboard.press("j")
    assert page.hovered is None
    page.keyboard.press("Escape")
    assert not page.locator("#helping").is_visible()
    blue = (0x56, 0xB4, 0xE9)
    before = page.pixels("timeline", blue)
    page.keyboard.press("c")
    assert page.locator("#critical").get_attribute("aria-pressed") == "true"
    assert 0 < page.pixels("timeline", blue) < before  # `student` as ever, `teacher` pale


def test_everything_can_be_reached_by_tab_and_says_what_it_is(opened: Opener) -> None:
    page = opened("diamond")
    reached = []
    for _ in range(10):
        page.keyboard.press("Tab")
        reached.append(page.js("() => document.activeElement.id || document.activeElement.parentElement.id"))
    assert reached == ["search", "critical", "out", "in", "fit", "theme", "help", "timeline", "split", "graph"]
    assert page.js("() => getComputedStyle(document.activeElement).outlineStyle") == "solid"
    for pane in ("timeline", "graph"):
        assert "4 nodes" in page.locator(f"#{pane} canvas").get_attribute("aria-label")
    page.locator("#split").focus()
    wide = page.js("() => document.querySelector('#timeline').clientWidth")
    page.keyboard.press("ArrowLeft")
    assert page.js("() => document.querySelector('#timeline').clientWidth") < wide


def test_the_search_finds_marks_and_steps(opened: Opener) -> None:
    page = opened("sixty")
    plain = page.picture("timeline")
    page.keyboard.press("/")
    page.keyboard.type("LAYERS.7")
    assert page.of("found") == 6
    assert page.locator("#found").inner_text() == "6 of 60"
    assert page.picture("timeline") != plain
    seen = set()
    for _ in range(6):
        page.keyboard.press("Enter")
        seen.add(page.hovered)
    assert seen == {f"layers.7.{letter}" for letter in "qkvofn"}
    page.keyboard.press("Escape")
    assert page.of("found") == 0
    assert page.hovered is None
    assert page.picture("timeline") == plain


# --------------------------------------------------------------------------------------------- 5 000 nodes


def test_five_thousand_nodes_are_drawn_as_far_as_they_can_be_seen(opened: Opener) -> None:
    page = opened("large")
    counts = page.of("counts")
    assert (counts["items"], counts["boxes"]) == (5000, 5000)
    vermillion = (0xD5, 0x5E, 0x00)
    assert page.pixels("timeline", vermillion) > 20  # one failed of 5 000 is seen without a search
    page.keyboard.press("/")
    page.keyboard.type("layers.416.o")
    page.keyboard.press("Enter")
    assert page.of("found") == 1
    assert page.hovered == "layers.416.o"
    page.locator("#timeline canvas").focus()
    page.keyboard.press("Enter")
    drawn = page.of("drawn")
    assert 1 <= drawn["bars"] < 200
    assert 1 <= drawn["boxes"] < 200
    assert "layers.416.o" in page.written("timeline")
    assert "layers.416.o" in page.written("graph")
    page.point("layers.416.o", "graph")
    assert page.hovered == "layers.416.o"
    page.keyboard.press("0")
    assert page.of("drawn")["boxes"] == 5000
    assert page.of("drawn")["bars"] < 5000
