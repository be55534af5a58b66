"""`milena http`: the HTTP server of one cluster, which `milena up --http` starts."""

from __future__ import annotations

from milena.command_line.options import CommandLine, Option, port_number
from milena.up.http_server import check_extra
from milena.up.layout import DEFAULT_DIR
from milena.up.settings import HTTP_PORT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND = CommandLine(
    "http",
    "Serve state, events and lab commands of one cluster over HTTP, in the foreground. `milena up --http` starts this\n"
    "for its own cluster. It needs the extra console. Programs send `Authorization: Bearer` with the token in\n"
    "DIR/http-token, and `milena console` prints a link for a browser. With --bootstrap-server the cluster may be\n"
    "any: the state is what Kafka's protocol says, and nodes and processes cannot be controlled. With --lab, too, the\n"
    "nodes are asked and controlled through their sockets.",
    [
        Option(
            "--dir", "the directory of a `milena up --lab`, or with -b one for the token", "DIR", default=DEFAULT_DIR
        ),
        Option("--bootstrap-server", "a cluster without a directory", "HOST:PORT,...", short="-b"),
        Option("--lab", "with -b: the folders of nodes with `milena node --lab` or MILENA_LAB", "DIR,...", default=""),
        Option("--port", "the port; 0: a free one", "PORT", default=HTTP_PORT, convert=port_number),
        Option("--host", "the address to listen on; 0.0.0.0 for all", "HOST", default="127.0.0.1"),
        Option("--allowed-host", "a further name that clients may use for this server", "NAME", many=True),
        Option("--console", "serve the console's page, too"),
    ],
    examples=["milena http --dir /tmp/one --console", "milena http -b broker-1:9092 --dir /tmp/http --console"],
)


def main(arguments: Sequence[str]) -> int:
    values = COMMAND.parse(arguments)
    if values.help:
        print(COMMAND.help())
        return 0
    check_extra("milena http")
    from milena.console.server import run

    return run(values)
