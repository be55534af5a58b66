"""`milena http`: the HTTP server of one cluster, which `milena up --http` starts."""

from __future__ import annotations

import os

from milena.command_line.errors import UsageError
from milena.command_line.options import CommandLine, Option, port_number
from milena.up.http_server import check_extra
from milena.up.layout import DEFAULT_DIR
from milena.up.settings import HTTP_PORT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

TOKEN = "MILENA_HTTP_TOKEN_FILE"
COMMAND = CommandLine(
    "http",
    "Serve state, events and lab commands of one cluster over HTTP, in the foreground. `milena up --http` starts this\n"
    "for its own cluster. It needs the extra console. Programs send `Authorization: Bearer` with the token of the\n"
    "cluster's directory. With --bootstrap-server the cluster may be any: the state is what Kafka's protocol says,\n"
    "and processes and nodes cannot be controlled, unless --sockets has their sockets.",
    [
        Option("--dir", "the directory of a `milena up --lab`", "DIR", default=DEFAULT_DIR),
        Option("--bootstrap-server", "a cluster without a directory", "HOST:PORT,...", short="-b"),
        Option("--sockets", "with --bootstrap-server: a folder with the sockets of nodes (MILENA_LAB)", "DIR"),
        Option("--token-file", f"the file with the token (default: DIR/http-token, or {TOKEN})", "FILE"),
        Option("--port", "the port; 0: a free one", "PORT", default=HTTP_PORT, convert=port_number),
        Option("--host", "the address to listen on; 0.0.0.0 for all", "HOST", default="127.0.0.1"),
        Option("--allowed-host", "a further name that clients may use for this server", "NAME", many=True),
        Option("--console", "serve the console's page, too"),
    ],
    examples=["milena http --dir /tmp/one --console", "milena http -b broker-1:9092 --token-file token --host 0.0.0.0"],
)


def main(arguments: Sequence[str]) -> int:
    values = COMMAND.parse(arguments)
    if values.help:
        print(COMMAND.help())
        return 0
    if values.bootstrap_server and "dir" in values.given:
        raise UsageError("--dir and --bootstrap-server exclude each other")
    check_extra("milena http")
    values.found["token_file"] = values.token_file or os.environ.get(TOKEN)
    if values.bootstrap_server and not values.token_file:
        raise UsageError("--bootstrap-server needs --token-file")
    from milena.console.server import run

    return run(values)
