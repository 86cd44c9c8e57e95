"""The page in a browser: what it shows, and how it answers to mouse and keyboard.

The texts on the canvases are heard from the calls that draw them; where lines and colours matter, pixels are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.observe.page_in_browser import HEAR, SAMPLES, WICKED, Page, chromium, missing
from weave.observe.page import write_page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright")
    if (path := chromium()) is None:
        missing("Chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path)
        yield running
        running.close()


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
        tab.until("weavePage.drawn.boxes > 0")
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
    page = Page(browser.new_page())
    page.page.goto(written("diamond").as_uri())
    came = page.js(
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
        page.until(f"forbidden.has('{directive}')")
    assert page.js("window.broken") is None
    page.page.close()


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
    page.until("weavePage.theme === 'dark'")


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


def test_the_graph_marks_a_node_and_what_is_stitched_to_it(opened: Opener) -> None:
    page = opened("ranks", scheme="dark")
    white = (255, 255, 255)
    assert page.pixels("graph", white) < 30
    page.point("second", "timeline")  # nothing is stitched to that of rank 0
    alone = page.pixels("graph", white)
    assert alone > 100
    page.point("first", "timeline")
    assert page.pixels("graph", white) > alone + 30


def test_what_is_out_of_sight_in_the_other_picture_comes_into_sight(opened: Opener) -> None:
    page = opened("sixty")
    name, last = "layers.0.q", "layers.9.f"  # the first and the last
    page.mouse.move(*page.at(last, "timeline"))
    page.mouse.wheel(0, -1500)
    assert not page.js("(name) => weavePage.at(name).timeline", name)
    page.point(name, "graph")
    assert page.hovered == name
    page.at(name, "timeline")
    page.mouse.wheel(0, -1500)
    page.locator("#fit").focus()
    page.mouse.move(5, 5)
    pane = page.locator("#graph canvas").bounding_box()
    x, y = page.at(last, "graph")
    assert not (pane["x"] < x < pane["x"] + pane["width"] and pane["y"] < y < pane["y"] + pane["height"])
    page.locator("#timeline canvas").dblclick(position={"x": 300, "y": 400})
    page.point(last, "timeline")
    x, y = page.at(last, "graph")
    assert pane["x"] < x < pane["x"] + pane["width"]
    assert pane["y"] < y < pane["y"] + pane["height"]


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
    page.mouse.move(*page.at("layers.416.o", "graph"))  # at once: on its way it would point at others
    assert page.hovered == "layers.416.o"
    page.keyboard.press("0")
    assert page.of("drawn")["boxes"] == 5000
    assert page.of("drawn")["bars"] < 5000
