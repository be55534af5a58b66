"""The process of the HTTP server."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import anyio
import uvicorn

from milena import VERSION
from milena.client.cluster import Cluster
from milena.command_line.bootstrap import parse_addresses
from milena.command_line.errors import UserError
from milena.console.access import Access
from milena.console.application import application
from milena.console.context import Context
from milena.console.guard import cookie_name
from milena.console.kafka_place import LIMITS, KafkaPlace
from milena.console.lab_place import LONE_LIMITS, LabPlace, LoneNode, broker_addresses
from milena.console.model import Json, Model
from milena.console.places import Place
from milena.console.transport import Http
from milena.console.watch import Watch
from milena.runtime.containment import Containment
from milena.runtime.process import PARENT_FD, real_runtime
from milena.up import channel, http_files, private_files
from milena.up.detached import known
from milena.up.layout import ClusterDir
from milena.up.settings import bracketed, load

if TYPE_CHECKING:
    from milena.command_line.options import Values
    from milena.runtime.context import Runtime

MOST_CONNECTIONS: Final = 256
CLOSING_SECONDS: Final = 1
"""Seconds that answers may take after a stop was requested: event streams never end by themselves."""
SENT_BYTES: Final = 256 << 10
"""Unread bytes of one connection in the kernel, which would otherwise hold 4 MiB for each slow client."""
LONGEST_HEADERS: Final = 16 << 10


def run(values: Values) -> int:
    """Serve until SIGTERM, SIGINT, or the end of the supervisor. Raises UserError if the server cannot start."""
    if values.bootstrap_server:
        cluster, directory = ClusterDir(values.dir), None
        private_files.make_folder(cluster.path)
    elif values.lab:
        raise UserError("--lab needs --bootstrap-server; a cluster of `milena up` has --dir")
    else:
        cluster = directory = known(values.dir)
    token = http_files.token(cluster.http_token)
    listening = bind(values.host, values.port)
    shown = "127.0.0.1" if values.host in ("0.0.0.0", "::", "") else bracketed(values.host)
    address = f"http://{shown}:{listening.getsockname()[1]}"
    anyio.run(_serve, cluster, directory, values, token, listening, address)
    http_files.forget(cluster, address)
    return 0


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises UserError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_BYTES)
        listening.bind(address)
    except OSError as error:
        raise UserError(f"the HTTP server cannot listen on {bracketed(host)}:{port}: {error.strerror}") from None
    return listening


def cluster_of(directory: ClusterDir | None, values: Values, runtime: Runtime) -> tuple[Place, Json]:
    """Return the cluster's place, and its description for the state."""
    given = values.bootstrap_server
    lone = [ClusterDir(folder) for folder in values.lab.split(",") if folder]
    addresses = parse_addresses(given) if directory is None else [*broker_addresses(directory)]
    client = Cluster(runtime, addresses, f"milena-http-{secrets.token_hex(3)}", request_timeout=10.0)
    described: Json = {
        "id": "" if directory is None else load(directory).cluster_id,
        "dir": None if directory is None else directory.path,
        "lab": directory is not None or bool(lone),
        "version": VERSION,
        "limits": "" if directory is not None else LONE_LIMITS if lone else LIMITS,
        "bootstrap": ",".join(f"{bracketed(host)}:{number}" for host, number in addresses),
    }
    if directory is not None:
        return LabPlace([directory], client), described
    return (LabPlace(lone, client, LoneNode) if lone else KafkaPlace(client)), described


async def _serve(
    files: ClusterDir,
    directory: ClusterDir | None,
    values: Values,
    token: str,
    listening: socket.socket,
    address: str,
) -> None:
    port = listening.getsockname()[1]
    runtime = real_runtime()
    model = Model(runtime.clock.time_ms)
    place, model.cluster = cluster_of(directory, values, runtime)
    context = Context(
        access=Access(token, files.http_code, [values.host, *values.allowed_host]),
        cookie=cookie_name(port),
        model=model,
        watch=Watch(place, model, runtime.clock.monotonic, Containment(runtime.clock).note),
        place=place,
        directory=directory,
        page=values.console,
    )
    server = Server(
        uvicorn.Config(
            application(context),
            http=Http,
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_level="error",  # a warning for each invalid request would fill the log
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS,
            h11_max_incomplete_event_size=LONGEST_HEADERS,
            timeout_graceful_shutdown=CLOSING_SECONDS,
        ),
        lambda: _announce(files, directory, address),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_with_parent, server)
        tasks.start_soon(_end_by_signal, server)
        await server.serve([listening])
        tasks.cancel_scope.cancel()
    place.client.close()


class Server(uvicorn.Server):
    """Calls ``ready`` when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn's method ends the process by the signal, before the server's files are removed."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def _announce(files: ClusterDir, directory: ClusterDir | None, address: str) -> None:
    private_files.replace(files.http_address, f"{address}\n")
    if directory is not None:
        channel.notify_supervisor(directory, 0, channel.HTTP_READY)
    sys.stderr.write(f"HTTP API at {address}, the token is in {files.http_token}\n")


async def _end_by_signal(server: uvicorn.Server) -> None:
    """Stop at the first signal, and without waiting for answers at the second one."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            server.force_exit, server.should_exit = server.should_exit, True


async def _end_with_parent(server: uvicorn.Server) -> None:
    """Stop when the pipe of the process that started this one reaches its end."""
    text = os.environ.get(PARENT_FD)
    if text is None:
        return
    pipe = int(text)
    os.set_inheritable(pipe, False)
    await anyio.wait_readable(pipe)
    server.should_exit = True
