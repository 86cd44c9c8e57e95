"""A FastAPI service whose log says, line by line, which request and which run it is about.

    pip install weave-dataflow fastapi uvicorn
    uvicorn --app-dir examples service:app
    curl 'localhost:8000/rank?user=ada&text=red+shoes&text=blue+shoes'

structlog is configured as in any service: JSON, a request's id bound by a middleware. weave adds its lines there without
being asked, and `weave_run_id` and `weave_node` are on the service's own lines inside nodes, in worker threads too.
"""

import logging
import uuid
from collections.abc import Awaitable, Callable
from typing import Annotated

import anyio
import structlog
import torch
from fastapi import FastAPI, Query, Request, Response
from torch import nn

from weave import ExternalTarget, FunctionTarget, ModuleTarget, Needle, RunOptions

log = structlog.get_logger()
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso"),
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(),
    ],
    wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),  # DEBUG logs every node, too
)

WIDTH, LONGEST = 32, 64


class Encoder(nn.Module):
    """Texts, as rows of bytes, to a vector each."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, WIDTH, padding_idx=0)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True) for _ in range(2)
        )

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        values = self.embed(rows)
        for layer in self.layers:
            values = layer(values)
        return values.mean(1)


def rows(texts: list[str]) -> torch.Tensor:
    found = torch.zeros(len(texts), LONGEST, dtype=torch.long)
    for row, text in zip(found, texts, strict=True):
        kept = text.encode()[:LONGEST]
        row[: len(kept)] = torch.tensor(list(kept))
    return found


async def ask_database(user: str) -> torch.Tensor:
    await anyio.sleep(0)  # as if it were asked
    return torch.eye(WIDTH)[len(user) % WIDTH]


async def history(user: str) -> torch.Tensor:
    known = await ask_database(user)
    log.info("history found", user=user)
    return known


def rank(vectors: torch.Tensor, known: torch.Tensor) -> list[int]:
    scores = vectors @ known
    log.info("ranked", texts=len(scores))
    return scores.argsort(descending=True).tolist()


torch.manual_seed(0)
encoder = Encoder().requires_grad_(False).eval()
caller = ExternalTarget()
e, h, r = ModuleTarget("encoder", encoder), FunctionTarget("history", history), FunctionTarget("rank", rank)
ranking = (
    Needle()
    .stitch(caller.input("rows"), e.input(""))
    .stitch(caller.input("user"), h.input())
    .stitch(e.output(""), r.input())
    .stitch(h.output(), r.input())
    .stitch(r.output(), caller.output("order"))
    .knot(options=RunOptions(max_workers=1, timeout=10.0))
)

app = FastAPI()


@app.middleware("http")
async def name_the_request(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(request_id=request.headers.get("x-request-id") or uuid.uuid4().hex)
    response = await call_next(request)
    log.info("answered", path=request.url.path, status=response.status_code)
    return response


@app.get("/rank")
async def ranked(user: str, text: Annotated[list[str], Query()]) -> list[str]:
    out = await ranking.run({"rows": rows(text), "user": user}, {})
    return [text[index] for index in out["order"]]
