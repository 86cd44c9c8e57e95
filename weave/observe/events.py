"""The table of events: names, levels and fields, made from the types of `weave.spi.events`.

A line of a trace, a log line and an observer's argument are the same event. As a line, `run` is the run's id, and an
`error` is two fields of text, `error_type` and `error`; what is `None` or empty is left out.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from weave.spi import events


class Field(NamedTuple):
    """A field of a line: its name, its JSON type (`str`, `int`, `float`, `bool`, `list`), what it says."""

    name: str
    type: str
    required: bool
    doc: str


class EventType(NamedTuple):
    """An event: its name in lines, the class that observers get, its level in logs, its fields."""

    name: str
    type: type[events.Event]
    level: Literal["info", "debug"]
    doc: str
    fields: tuple[Field, ...]


_TYPES = {"RunInfo": "str", "Status": "str", "tuple[Output, ...]": "list"}
_JSON: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "list": (list, tuple),
}
# What `run.started` has besides, in a line: an observer finds it in its `RunInfo`.
_IN_LINES = {
    "run.started": (
        Field("graph", "str", True, "the graph's id; its `graph` line describes it"),
        Field("driver", "str", True, "`inline` for a synchronous call, `tasks` on a loop"),
    )
}


def _name(kind: type) -> str:
    first, second = re.findall("[A-Z][a-z]+", kind.__name__)
    return f"{first.lower()}.{second.lower()}"


def _fields(kind: type[events.Event]) -> tuple[Field, ...]:
    found: list[Field] = []
    for field in dataclasses.fields(kind):
        written = str(field.type).removesuffix(" | None")
        required = field.default is dataclasses.MISSING
        doc = field.metadata["doc"]
        if written == "BaseException":
            found += [
                Field("error_type", "str", required, f"{doc}: the exception's class"),
                Field("error", "str", False, f"{doc}: its text"),
            ]
        else:
            plain = "str" if written.startswith("Literal") else _TYPES.get(written, written)
            found.append(Field(field.name, plain, required, doc))
    return tuple(found)


def _table() -> dict[str, EventType]:
    kinds = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.Event)]
    table = {}
    for kind in kinds:
        if not kind.__subclasses__():
            name = _name(kind)
            level: Literal["info", "debug"] = "info" if name.startswith("run.") else "debug"
            fields = (*_fields(kind), *_IN_LINES.get(name, ()))
            table[name] = EventType(name, kind, level, (kind.__doc__ or "").split("\n")[0], fields)
    return table


EVENTS: Mapping[str, EventType] = _table()


def problems(line: Mapping[str, Any]) -> list[str]:
    """What is wrong with a line, by the table: unknown, missing and mistyped fields. Empty where nothing is."""
    name = line.get("event")
    if not isinstance(name, str) or name not in EVENTS:
        return [f"no event is called {name!r}"]
    known = {field.name: field for field in EVENTS[name].fields}
    said = [f"{name}.{key} is not in the table" for key in line if key != "event" and key not in known]
    for field in known.values():
        if field.name not in line:
            said += [f"{name}.{field.name} is missing"] if field.required else []
        elif not isinstance(line[field.name], _JSON[field.type]) or (
            field.type in ("int", "float") and isinstance(line[field.name], bool)
        ):
            said.append(f"{name}.{field.name} is {line[field.name]!r}, and must be {field.type}")
    return said


def markdown() -> str:
    """The table as the documentation has it."""
    rows = ["| event | field | type | |", "| --- | --- | --- | --- |"]
    for event in EVENTS.values():
        rows.append(f"| **`{event.name}`** | | {event.level} | {event.doc} |")
        rows += [
            f"| | `{field.name}` | {field.type}{'' if field.required else ', if known'} | {field.doc} |"
            for field in event.fields
        ]
    return "\n".join(rows) + "\n"
