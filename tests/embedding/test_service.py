"""weave in a FastAPI service: many requests at once, each with its own answer; a client that goes leaves nothing running.

`unless_gone` is the documentation's: its page is run, and the function taken from what it defines.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import torch
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import Response, StreamingResponse

from tests.docs.pages import DOCS, read
from tests.docs.running import run as run_page
from tests.embedding.graphs import Paused, features, known_of, scorer, spread

Names = dict[str, Any]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Names:
    """What the page on embedding defines."""
    directory: Path = tmp_path_factory.mktemp("page")
    return run_page(read((DOCS / "embedding.md").read_text()), "embedding.md", directory, "asyncio")


async def fetch(user: str) -> torch.Tensor:
    await asyncio.sleep(0)
    return known_of(user)


def client(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service")


async def passes(message: dict[str, Any]) -> None:
    """Let a message go to the client at once."""


async def as_server(
    app: FastAPI, path: str, gone: asyncio.Event, sending: Callable[[dict[str, Any]], Awaitable[None]] = passes
) -> list[dict[str, Any]]:
    """Call the application as a server does, with a client that goes when `gone` is set. Returns what was sent."""
    sent: list[dict[str, Any]] = []
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if not asked:
            asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        await sending(message)
        sent.append(dict(message))

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [],
        "client": ("client", 1),
        "server": ("service", 80),
    }
    await app(scope, receive, send)
    return sent


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/awaited", "/called"])
async def test_a_hundred_requests_at_once(path: str) -> None:
    """Every run waits until all hundred have come (or all that can), so they are under way together."""
    come, all_here = itertools.count(1), threading.Event()

    async def together(user: str) -> torch.Tensor:
        if next(come) == most:
            all_here.set()
        if not all_here.is_set():
            assert await asyncio.to_thread(all_here.wait, 60)
        return known_of(user)

    # FastAPI calls plain handlers in forty threads at most.
    most = 100 if path == "/awaited" else 40
    stitched, plainly = scorer(together)
    app = FastAPI()

    @app.get("/awaited")
    async def awaited(user: str, value: float) -> float:
        return (await stitched.run({"features": features(value), "user": user}, {}))["score"].item()

    @app.get("/called")
    def called(user: str, value: float) -> float:
        return stitched({"features": features(value), "user": user}, {})["score"].item()

    async with client(app) as c:
        asked = [{"user": "u" * (i % 7), "value": float(i)} for i in range(100)]
        answers = await asyncio.gather(*[c.get(path, params=p) for p in asked])
    assert [a.json() for a in answers] == [plainly(p["value"], p["user"]) for p in asked]
    assert next(come) == 101


@pytest.mark.asyncio
async def test_a_limiter_bounds_the_runs() -> None:
    under_way = most = 0

    async def counted(x: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(5):
            await asyncio.sleep(0)
        under_way -= 1
        return x

    stitched, room, app = spread(counted), anyio.CapacityLimiter(4), FastAPI()

    @app.get("/")
    async def bounded(x: int) -> int:
        async with room:
            return (await stitched.run({"x": x}, {}))["counted"]

    async with client(app) as c:
        answers = await asyncio.gather(*[c.get("/", params={"x": i}) for i in range(40)])
    assert [a.json() for a in answers] == list(range(40))
    assert most == 4


@pytest.mark.asyncio
async def test_a_nodes_exception_reaches_the_handler() -> None:
    def check(x: int) -> int:
        if x < 0:
            raise ValueError("negative")
        return x

    stitched, app = spread(check), FastAPI()

    @app.get("/")
    async def handler(x: int) -> int:
        try:
            return (await stitched.run({"x": x}, {}))["check"]
        except ValueError as error:
            raise HTTPException(422, str(error)) from error

    async with client(app) as c:
        answers = await asyncio.gather(c.get("/", params={"x": -1}), c.get("/", params={"x": 1}))
    assert [(a.status_code, a.json()) for a in answers] == [(422, {"detail": "negative"}), (200, 1)]


@pytest.mark.asyncio
async def test_a_client_that_goes_ends_the_run(page: Names) -> None:
    unless_gone: Callable[..., Any] = page["unless_gone"]
    paused, ended = Paused(), []
    started, gone = asyncio.Event(), asyncio.Event()

    async def waits(x: Any) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waits")

    app = FastAPI()

    @app.get("/waits")
    async def handler(request: Request) -> Response:
        try:
            await unless_gone(request, spread(waits).run({"x": 0}, {}))
        except asyncio.CancelledError:
            ended.append("handler")
            return Response(status_code=499)
        return Response()

    @app.get("/computes")
    async def computes(request: Request) -> Response:
        try:
            await unless_gone(request, paused.graph().run({"x": torch.ones(1)}, {}))
        except asyncio.CancelledError:
            ended.append(f"handler, layers {paused.reached}")
            return Response(status_code=499)
        return Response()

    call = asyncio.create_task(as_server(app, "/waits", gone))
    await started.wait()
    gone.set()
    assert (await call)[0]["status"] == 499
    assert ended == ["waits", "handler"]

    gone.clear()
    call = asyncio.create_task(as_server(app, "/computes", gone))
    await asyncio.to_thread(paused.entered.wait, 60)
    gone.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not call.done(), "its thread has not come to a port yet"
    paused.go_on.set()
    await call
    assert ended[2:] == ["handler, layers [0, 1]"]
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.asyncio
async def test_a_run_that_ends_before_the_client_goes(page: Names) -> None:
    unless_gone: Callable[..., Any] = page["unless_gone"]
    app = FastAPI()

    async def quick(x: int) -> int:
        return x

    async def fails(x: int) -> int:
        raise ValueError("mine")

    @app.get("/")
    async def handler(request: Request) -> int:
        with pytest.raises(ValueError, match="mine"):
            await unless_gone(request, spread(fails).run({"x": 3}, {}))
        return (await unless_gone(request, spread(quick).run({"x": 3}, {})))["quick"]

    sent = await as_server(app, "/", asyncio.Event())
    assert (sent[0]["status"], sent[1]["body"]) == (200, b"3")
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.asyncio
async def test_a_request_that_is_cancelled(page: Names) -> None:
    """The handler's own task, as a server does that shuts down. In-process transport: the client's task is that task."""
    unless_gone: Callable[..., Any] = page["unless_gone"]
    started, ended = asyncio.Event(), []

    async def waits(x: Any) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(x)

    app = FastAPI()

    @app.get("/plain")
    async def plain() -> None:
        await spread(waits).run({"x": "plain"}, {})

    @app.get("/listening")
    async def listening(request: Request) -> None:
        await unless_gone(request, spread(waits).run({"x": "listening"}, {}))

    async with client(app) as c:
        for name in ("plain", "listening"):
            started.clear()
            request = asyncio.create_task(c.get(f"/{name}"))
            await started.wait()
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
            assert ended[-1] == name
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.asyncio
@pytest.mark.parametrize("where", ["in a run", "while a line is sent"])
async def test_a_streaming_response_that_nobody_reads_on(where: str) -> None:
    running, stuck, gone = 0, asyncio.Event(), asyncio.Event()

    async def slow(x: int) -> int:
        nonlocal running
        running += 1
        try:
            if x == 2:
                stuck.set()
                await asyncio.Event().wait()
            return x
        finally:
            running -= 1

    stitched, app = spread(slow), FastAPI()

    async def lines() -> AsyncIterator[bytes]:
        for index in range(100):
            out = await stitched.run({"x": index}, {})
            yield b"%d\n" % out["slow"]

    @app.get("/")
    async def handler() -> StreamingResponse:
        return StreamingResponse(lines())

    async def blocks(message: dict[str, Any]) -> None:
        if where == "while a line is sent" and message.get("body") == b"1\n":
            stuck.set()
            await asyncio.Event().wait()

    call = asyncio.create_task(as_server(app, "/", gone, blocks))
    await stuck.wait()
    assert running == (where == "in a run")
    gone.set()
    sent = await call
    assert b"".join(m.get("body", b"") for m in sent).startswith(b"0\n")
    assert running == 0
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
