"""``kafka-cluster``: the cluster's id and its nodes (Kafka's ClusterTool)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from milena.client import replicas
from milena.client.cluster import Cluster
from milena.scripts.common.connection import CONFIG, CONTROLLER, SERVER, client_of, properties_of, run
from milena.scripts.common.options import Found, Option, Parser, integer

COMMANDS: Final = ("cluster-id", "unregister", "list-endpoints")
PARSER: Final = Parser(
    "usage: kafka-cluster {cluster-id,unregister,list-endpoints} ...\n\nThe Kafka cluster tool.",
    [
        Option(SERVER, "The brokers to connect to.", "servers", short="b"),
        Option(CONTROLLER, "The controllers to connect to.", "controllers", short="C"),
        Option("config", "DEPRECATED: use --command-config.", "file", short="c"),
        Option(CONFIG, "A properties file with settings of the client.", "file"),
        Option("id", "The id of the broker to unregister.", "id", short="i", convert=integer),
        Option("include-fenced-brokers", "List fenced brokers, too."),
    ],
)


def main(arguments: Sequence[str]) -> int:
    found = PARSER.parse(arguments)
    if len(found.words) != 1 or found.words[0] not in COMMANDS:
        raise found.wrong(f"kafka-cluster: error: invalid choice: choose from {', '.join(COMMANDS)}")
    if found.words == ["unregister"]:
        found.require("id")
    properties = properties_of(found.one("config")) if found.has("config") else None
    bodies = {"cluster-id": show_id, "unregister": unregister, "list-endpoints": list_endpoints}
    return run(client_of(found, properties), partial(bodies[found.words[0]], found), "listNodes")


async def show_id(found: Found, cluster: Cluster) -> int:
    cluster_id, _ = await replicas.describe_cluster(cluster, controllers=found.has(CONTROLLER))
    print(f"Cluster ID: {cluster_id}")
    return 0


async def unregister(found: Found, cluster: Cluster) -> int:
    await replicas.unregister_broker(cluster, found.one("id"))
    print(f"Broker {found.one('id')} is no longer registered.")
    return 0


async def list_endpoints(found: Found, cluster: Cluster) -> int:
    at_controller = found.has(CONTROLLER)
    if at_controller and found.has("include-fenced-brokers"):
        raise found.wrong("The option --include-fenced-brokers is only supported with --bootstrap-server option")
    _, nodes = await replicas.describe_cluster(
        cluster, fenced_too=found.has("include-fenced-brokers"), controllers=at_controller
    )
    rows = [("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE")]
    for node in nodes:
        state = "fenced" if node.fenced else "unfenced"
        kind = "controller" if at_controller else "broker"
        rows.append((str(node.id), node.host, str(node.port), node.rack or "null", state, kind))
    width = max((len(row[1]) for row in rows[1:]), default=100)
    for identity, host, port, rack, state, kind in rows:
        shown = f"{identity:<10} {host:<{width}} {port:<10} {rack:<10}"
        print(f"{shown} {kind:<15}" if at_controller else f"{shown} {state:<10} {kind:<15}")
    return 0
