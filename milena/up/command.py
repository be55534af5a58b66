"""`milena up`: run a cluster in the foreground, or start one in the background."""

from __future__ import annotations

import os
import sys

from milena.command_line.errors import UserError, reason_of
from milena.command_line.options import CommandLine, Option, key_value, port_number
from milena.releases import RELEASES
from milena.up.layout import DEFAULT_DIR, ClusterDir
from milena.up.settings import BROKERS, HOST, HTTP_PORT, PORT, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from milena.command_line.options import Values


def topic(text: str) -> tuple[str, str, str]:
    """``name[:partitions[:replicas]]``. Raises ValueError."""
    name, *counts = text.split(":")
    if not name or len(counts) > 2 or not all(count.isdecimal() and int(count) > 0 for count in counts):
        raise ValueError("write it as name:partitions:replicas, as in orders:6:1")
    partitions, replicas = (*counts, *("1", "1")[len(counts) :])
    return name, partitions, replicas


def release(text: str) -> str:
    """A release of Kafka, as in 4.3 or 4.3.1. Raises ValueError."""
    name = ".".join(text.split(".")[:2])
    if name not in RELEASES:
        raise ValueError(f"the releases are {', '.join(RELEASES)}")
    return name


COMMAND = CommandLine(
    "up",
    "Run one controller and some brokers as processes of this machine, in the foreground. When all brokers serve, one "
    "line\n`ready bootstrap=HOST:PORT,...` is printed on standard output. The same directory starts "
    "again with all its data, "
    "and options\nthat are not given keep their values from the last start, which DIR/settings lists.",
    options=[
        Option("--brokers", "number of brokers", "N", default=BROKERS, convert=int),
        Option("--log-dirs", "number of log directories of each broker", "N", default=1, convert=int),
        Option(
            "--port",
            "port of the first broker; the others use the next ports; 0: free ports",
            "P",
            default=PORT,
            convert=int,
        ),
        Option("--dir", "the directory of the cluster", "DIR", default=DEFAULT_DIR),
        Option("--from", "make the new cluster in --dir from a snapshot (milena snapshot)", "SNAPSHOT"),
        Option(
            "--override",
            "a configuration value, by Kafka's key, for every node",
            "K=V",
            many=True,
            convert=key_value,
        ),
        Option("--no-override", "drop the overrides of former starts (any new --override replaces all of them, too)"),
        Option("--topic", "create a topic before the ready line", "NAME:PARTITIONS:REPLICAS", many=True, convert=topic),
        Option("--host", "the address to listen on; 0.0.0.0 for all", "HOST", default=HOST),
        Option("--advertised-host", "the host name that is advertised to clients", "HOST"),
        Option("--cluster-id", "the id of a new cluster", "ID"),
        Option("--feature", "a feature's level for a new cluster", "NAME=LEVEL", many=True, convert=key_value),
        Option("--release-version", "the metadata version of a new cluster, as in 4.4", "VERSION"),
        Option(
            "--kafka-version",
            "the release of Kafka that the nodes behave like: its API versions, feature levels, keys and defaults",
            "VERSION",
            convert=release,
        ),
        Option(
            "--tier", "where tiered topics are stored: a folder, or a URL for fsspec (default: DIR/remote)", "PLACE"
        ),
        Option("--no-tier", "without a remote tier"),
        Option(
            "--metrics",
            "/metrics, /health and /ready over HTTP: broker-1 on this port, the other brokers and the "
            "controller on the next; 0: free ports",
            "PORT",
            convert=port_number,
        ),
        Option("--no-metrics", "without metrics"),
        Option("--lab", "open a socket to each node for `milena lab`"),
        Option(
            "--http",
            f"serve state, events and lab commands over HTTP on this port (default: {HTTP_PORT}; 0: a free one);"
            " implies --lab",
            "PORT",
            convert=port_number,
            bare=HTTP_PORT,
        ),
        Option("--console", "serve a console for the browser, too; implies --http"),
        Option("--http-host", "the address of --http; 0.0.0.0 for all", "HOST", default="127.0.0.1"),
        Option("--allowed-host", "a further name that clients may use for the HTTP server", "NAME", many=True),
        Option("--detach", "return when the cluster is ready and leave it running"),
    ],
    examples=[
        "milena up",
        "milena up --brokers 1 --port 19092 --dir /tmp/one --topic orders:6:1",
        "milena up --detach && milena status && milena down",
        "milena up --override log.retention.check.interval.ms=1000 --metrics 9400",
    ],
)


def main(arguments: Sequence[str]) -> int:
    values = COMMAND.parse(arguments)
    if values.help:
        print(COMMAND.help())
        return 0
    cluster = ClusterDir(values.dir)
    if values.detach:
        from milena.up.detached import start

        return start(cluster, [word for word in arguments if word != "--detach"])
    return run(cluster, values)


def run(cluster: ClusterDir, values: Values) -> int:
    """Run the cluster until it is stopped. Return the exit code."""
    from milena.up.supervisor import Supervisor
    from milena.up.view import TableView, View

    source = getattr(values, "from")
    if source:
        from milena.up import snapshots

        snapshots.unpack(source, cluster)
    try:
        settings, former = load(cluster), load(cluster)
    except OSError as error:
        raise UserError(f"cannot read {reason_of(error)}") from None
    except ValueError as error:
        raise UserError(f"cannot read {cluster.settings}: {error}") from None
    settings.take(values)
    at_formatting = [word for name, level in values.feature for word in ("--feature", f"{name}={level}")]
    if values.release_version:
        at_formatting += ["--release-version", values.release_version]
    drawable = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    view = TableView(f"Milena in {cluster.path}") if drawable else View()
    http = None
    if values.console or values.http is not None:
        from milena.up.http_server import HttpServer, check_extra

        check_extra("--console" if values.console else "--http")
        port = HTTP_PORT if values.http is None else values.http
        http = HttpServer(cluster, port, values.http_host, values.allowed_host, page=values.console)
    lab = values.lab or http is not None
    options = {"controller": at_formatting}
    supervisor = Supervisor(cluster, settings, former, view, options, lab=lab, http=http, from_snapshot=bool(source))
    return supervisor.run(values.topic)
