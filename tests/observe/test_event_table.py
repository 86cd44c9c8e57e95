"""The documentation's table of events is the one that the code makes. `python -m tests.observe.test_event_table` writes it."""

from __future__ import annotations

from pathlib import Path

from weave.observe.events import EVENTS, markdown

PAGE = Path(__file__).parents[2] / "docs" / "observing.md"


def table_in(text: str) -> str:
    """The page's table, from its head to the first line that is none of it."""
    start = text.index(markdown().splitlines()[0])
    return text[start : text.find("\n\n", start) + 1 or None]


def test_the_page_has_the_table_as_it_is() -> None:
    found = table_in(PAGE.read_text(encoding="utf-8"))
    assert found == markdown(), "run `python -m tests.observe.test_event_table`"


def test_the_table_has_every_event_and_field() -> None:
    rows = [row.split(" | ") for row in markdown().splitlines()]
    found: dict[str, set[str]] = {}
    for row in rows[2:]:
        name = row[0].strip("|* `")
        if name:
            fields = found.setdefault(name, set())
        else:
            fields.add(row[1].strip(" `"))
    assert found == {name: {field.name for field in event.fields} for name, event in EVENTS.items()}


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(page.replace(table_in(page), markdown()), encoding="utf-8")
