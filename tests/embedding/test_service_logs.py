"""The service of `examples/service.py`: whose line is it? A hundred requests at once; requests that end half-way."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
import structlog

from weave.observe import flush

EXAMPLE = Path(__file__).parents[2] / "examples" / "service.py"
TEXTS = ["red shoes", "blue shoes", "a hat"]


@pytest.fixture
def service() -> Iterator[ModuleType]:
    """The example, imported as a server would: it configures structlog."""
    structlog.reset_defaults()
    spec = importlib.util.spec_from_file_location("weave_example_service", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["weave_example_service"] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        yield module
        flush()
    finally:
        structlog.contextvars.clear_contextvars()
        structlog.reset_defaults()
        del sys.modules["weave_example_service"]


def client(service: ModuleType) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(service.app), base_url="http://service")


def ask(c: httpx.AsyncClient, request: str) -> Any:
    return c.get("/rank", params={"user": f"user {request}", "text": TEXTS}, headers={"x-request-id": request})


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, list[dict[str, Any]]]:
    """The lines of each request, by its id. Nothing else was printed."""
    flush()
    out, err = capsys.readouterr()
    assert err == ""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in out.splitlines():
        fields = json.loads(line)
        found.setdefault(fields["request_id"], []).append(fields)
    return found


@pytest.mark.asyncio
async def test_each_line_of_a_hundred_requests_names_its_request_and_run(
    service: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No history is known before all hundred have asked, so that their runs are under way together."""
    asked, all_here, found = 0, asyncio.Event(), service.ask_database

    async def together(user: str) -> Any:
        nonlocal asked
        asked += 1
        if asked == 100:
            all_here.set()
        await all_here.wait()
        return await found(user)

    monkeypatch.setattr(service, "ask_database", together)
    requests = [f"request {index}" for index in range(100)]
    async with client(service) as c:
        answers = await asyncio.gather(*[ask(c, request) for request in requests])
    assert all(sorted(answer.json()) == sorted(TEXTS) for answer in answers)

    lines = said(capsys)
    assert sorted(lines) == sorted(requests)
    for request in requests:
        by_event = {line["event"]: line for line in lines[request]}
        assert len(lines[request]) == len(by_event) == 5
        assert set(by_event) == {"run.started", "history found", "ranked", "run.finished", "answered"}
        assert "weave_run_id" not in by_event.pop("answered")
        assert by_event["history found"]["user"] == f"user {request}"
        assert by_event["history found"]["weave_node"] == "history"
        assert by_event["ranked"]["weave_node"] == "rank"
        assert by_event["run.finished"]["status"] == "ok"
        assert len({line["weave_run_id"] for line in by_event.values()}) == 1
    assert len({line["weave_run_id"] for found in lines.values() for line in found if "weave_run_id" in line}) == 100


@pytest.mark.asyncio
async def test_requests_that_are_cancelled_or_fail_say_so(
    service: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three at once, one's client goes and one's database fails; the third is answered."""
    begun, go_on, count = asyncio.Event(), asyncio.Event(), 0

    async def waits(user: str) -> Any:
        nonlocal count
        count += 1
        if count == 3:
            begun.set()
        await go_on.wait()
        if "fails" in user:
            raise ConnectionError("no database")
        return service.torch.ones(service.WIDTH)

    monkeypatch.setattr(service, "ask_database", waits)
    async with client(service) as c:
        calls = {name: asyncio.create_task(ask(c, name)) for name in ("goes", "fails", "stays")}
        await begun.wait()
        calls["goes"].cancel()
        with pytest.raises(asyncio.CancelledError):
            await calls["goes"]
        go_on.set()
        with pytest.raises(ConnectionError):
            await calls["fails"]
        assert (await calls["stays"]).status_code == 200

    lines = said(capsys)
    ends = {
        request: [line["status"] for line in found if line["event"] == "run.finished"]
        for request, found in lines.items()
    }
    assert ends == {"goes": ["cancelled"], "fails": ["failed"], "stays": ["ok"]}
    assert [line["event"] for line in lines["goes"]] == ["run.started", "run.finished"]
    assert structlog.contextvars.get_contextvars() == {}
