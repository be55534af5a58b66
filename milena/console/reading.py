"""The state of the cluster and its changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

import anyio
from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from milena.console.context import Context, Shared
from milena.console.model import Delta
from milena.console.state_types import NodeState, State, answered
from milena.console.watch import Subscriber, TooManySubscribers

router = APIRouter(tags=["state"])

PIECE: Final = 1 << 16
"""Bytes handed to the connection at once, so that a slow reader holds no more."""
PING_SECONDS: Final = 15.0


@router.get("/health")
async def health() -> dict[str, str]:
    """Whether the server answers. It needs no token."""
    return {"status": "ok"}


@router.get("/api/state", responses=answered(State, "The whole state"))
async def state(context: Shared) -> Response:
    """The state of nodes, topics, partitions, replicas, groups and rules, asked for now."""
    await context.watch.fresh()
    body = context.model.full()
    length = {"content-length": str(len(body))}
    return StreamingResponse(in_pieces(body), media_type="application/json", headers=length)


async def in_pieces(body: bytes) -> AsyncIterator[bytes]:
    """Yield a long body in pieces. Asynchronous, so that the server needs no thread for it."""
    for position in range(0, len(body), PIECE):
        yield body[position : position + PIECE]


@router.get("/api/nodes", response_model=None, responses=answered(dict[str, NodeState], "The nodes by name"))
async def nodes(context: Shared) -> dict[str, dict[str, Any]]:
    """The nodes by name, asked for now."""
    await context.watch.fresh()
    return context.model.nodes


@router.get(
    "/api/events",
    responses={200: {"description": "Server-sent events: `delta` and `reset`", "content": {"text/event-stream": {}}}},
)
async def events(
    context: Shared,
    stream: Annotated[str, Query(description="the stream of the state that the client has")] = "",
    seq: Annotated[int, Query(ge=0, description="the number of the last delta that the client has")] = 0,
    last_event_id: Annotated[str, Header(description="the same as `STREAM-SEQ`")] = "",
) -> Response:
    """The changes of the state from a delta on. A client that reads too slowly gets the event `reset`: it has to read
    the whole state again."""
    if last_event_id:
        name, _, number = last_event_id.rpartition("-")
        stream, seq = name, int(number) if number.isdecimal() else 0
    return StreamingResponse(_events(context, stream, seq), media_type="text/event-stream")


async def _events(context: Context, stream: str, seq: int) -> AsyncIterator[bytes]:
    try:
        async with context.watch.subscribed() as subscriber:
            known = context.model.since(stream, seq)
            if known is None:
                yield _reset("the server does not have the changes since the client's state")
            for delta in known or ():
                yield _event(context, delta)
            async for part in _stream(context, subscriber):
                yield part
    except TooManySubscribers as error:
        yield f"event: refused\ndata: {error}\n\n".encode()


async def _stream(context: Context, subscriber: Subscriber) -> AsyncIterator[bytes]:
    """Yield deltas as they come. When some were lost, yield those that came before, then ``reset``."""
    while True:
        delta: Delta | None = None
        with anyio.move_on_after(PING_SECONDS):
            delta = await subscriber.receiving.receive()
        if delta is None:
            yield b": ping\n\n"
            continue
        yield _event(context, delta)
        if subscriber.lost and not subscriber.receiving.statistics().current_buffer_used:
            subscriber.lost = False
            yield _reset("the client was too slow, changes were left out")


def _event(context: Context, delta: Delta) -> bytes:
    return b"event: delta\nid: %s-%d\ndata: %s\n\n" % (context.model.stream.encode(), delta.number, delta.data)


def _reset(reason: str) -> bytes:
    return f'event: reset\ndata: {{"reason": "{reason}"}}\n\n'.encode()
