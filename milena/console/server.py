"""The process of the HTTP server."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import anyio
import uvicorn

from milena import VERSION
from milena.client.cluster import Cluster
from milena.command_line.errors import UserError
from milena.console.access import Access
from milena.console.application import application
from milena.console.context import Context
from milena.console.guard import cookie_name
from milena.console.lab_place import LabPlace, broker_addresses
from milena.console.model import Model
from milena.console.transport import Http
from milena.console.watch import Watch
from milena.runtime.process import PARENT_FD, real_runtime
from milena.up import channel, http_files, private_files
from milena.up.detached import known
from milena.up.layout import ClusterDir
from milena.up.settings import bracketed

if TYPE_CHECKING:
    from milena.command_line.options import Values

MOST_CONNECTIONS: Final = 256
CLOSING_SECONDS: Final = 1
"""Seconds that answers may take after a stop was requested: event streams never end by themselves."""
LONGEST_HEADERS: Final = 16 << 10


def run(values: Values) -> int:
    """Serve until SIGTERM, SIGINT, or the end of the supervisor. Raises UserError if the server cannot start."""
    cluster = known(values.dir)
    token = http_files.token(values.token_file or cluster.http_token)
    listening = bind(values.host, values.port)
    anyio.run(_serve, cluster, values, token, listening)
    return 0


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises UserError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        raise UserError(f"the HTTP server cannot listen on {bracketed(host)}:{port}: {error.strerror}") from None
    return listening


async def _serve(cluster: ClusterDir, values: Values, token: str, listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    runtime = real_runtime()
    client = Cluster(runtime, [*broker_addresses(cluster)], f"milena-http-{secrets.token_hex(3)}", request_timeout=10.0)
    model, place = Model(runtime.clock.time_ms), LabPlace(cluster, client)
    model.cluster = {
        "id": _cluster_id(cluster), "dir": cluster.path, "lab": True, "version": VERSION, "limits": "",
        "bootstrap": ",".join(f"{host}:{number}" for host, number in broker_addresses(cluster)),
    }  # fmt: skip
    shown = "127.0.0.1" if values.host in ("0.0.0.0", "::", "") else bracketed(values.host)
    context = Context(
        access=Access(token, cluster.http_code, [values.host, *values.allowed_host]),
        cookie=cookie_name(port),
        model=model,
        watch=Watch(place, model, runtime.clock.monotonic),
        place=place,
        directory=cluster,
        page=values.console,
    )
    server = Server(
        uvicorn.Config(
            application(context),
            http=Http,
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS,
            h11_max_incomplete_event_size=LONGEST_HEADERS,
            timeout_graceful_shutdown=CLOSING_SECONDS,
        ),
        lambda: _announce(cluster, f"http://{shown}:{port}"),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_with_parent, server)
        await server.serve([listening])
        tasks.cancel_scope.cancel()
    client.close()


class Server(uvicorn.Server):
    """Calls ``ready`` when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def _announce(cluster: ClusterDir, address: str) -> None:
    private_files.replace(cluster.http_address, f"{address}\n")
    channel.notify_supervisor(cluster, 0, channel.HTTP_READY)


async def _end_with_parent(server: uvicorn.Server) -> None:
    """Stop when the pipe of the process that started this one reaches its end."""
    text = os.environ.get(PARENT_FD)
    if text is None:
        return
    pipe = int(text)
    os.set_inheritable(pipe, False)
    await anyio.wait_readable(pipe)
    server.should_exit = True


def _cluster_id(cluster: ClusterDir) -> str:
    from milena.up.settings import load

    return load(cluster).cluster_id
