"""The documentation's table of events is the one that the code makes. `python -m tests.observe.test_event_table` writes it."""

from __future__ import annotations

from pathlib import Path

from weave.observe.events import EVENTS, markdown

PAGE = Path(__file__).parents[2] / "docs" / "observing.md"
BEGIN, END = "<!-- events -->\n", "<!-- /events -->\n"


def with_table(text: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{markdown()}\n{END}{after}"


def test_the_page_has_the_table_as_it_is() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    assert text == with_table(text), "run `python -m tests.observe.test_event_table`"


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
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
