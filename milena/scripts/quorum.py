"""``kafka-metadata-quorum``: the state of the metadata log's replicas (Kafka's MetadataQuorumCommand)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from milena.client import replicas
from milena.client.cluster import Cluster
from milena.client.replicas import QuorumReplica, QuorumView
from milena.protocol.uuids import to_text
from milena.scripts.common.connection import BOOTSTRAP, BOOTSTRAP_CONTROLLER, COMMAND_CONFIG, CONTROLLER, client_of, run
from milena.scripts.common.failures import ScriptError
from milena.scripts.common.options import Found, Option, Parser

NO_DIRECTORY: Final = "A" * 22
"""How Kafka writes the id of an unknown directory."""
PARSER: Final = Parser(
    "usage: kafka-metadata-quorum [options] describe ...\n\nThis tool describes kraft metadata quorum status.",
    [
        BOOTSTRAP,
        BOOTSTRAP_CONTROLLER,
        COMMAND_CONFIG,
        Option("status", "A summary."),
        Option("replication", "The state of each replica."),
        Option("human-readable", "Times relative to now."),
    ],
)


def main(arguments: Sequence[str]) -> int:
    found = PARSER.parse(arguments)
    if found.words != ["describe"]:
        if found.words and found.words[0] in ("add-controller", "remove-controller"):
            raise ScriptError(f"{found.words[0]} is not supported: the voters of the quorum are static")
        raise found.wrong("kafka-metadata-quorum: error: too few arguments: the command is describe")
    client = client_of(found)
    if found.has("status") and found.has("replication"):
        raise ScriptError("Only one of --status or --replication should be specified with describe sub-command")
    if found.has("replication"):
        return run(client, partial(show_replication, found.has("human-readable")), "describeMetadataQuorum")
    if not found.has("status"):
        raise ScriptError("One of --status or --replication must be specified with describe sub-command")
    if found.has("human-readable"):
        raise ScriptError("The option --human-readable is only supported along with --replication")
    return run(client, partial(show_status, found), "describeMetadataQuorum")


async def show_status(found: Found, cluster: Cluster) -> int:
    cluster_id, _ = await replicas.describe_cluster(cluster, controllers=found.has(CONTROLLER))
    quorum = await replicas.describe_quorum(cluster)
    leader = quorum.replicas[quorum.leader]
    last = min((quorum.replicas[voter] for voter in quorum.voters), key=lambda one: one.log_end)
    lag_ms = -1
    if last is leader:
        lag_ms = 0
    elif min(leader.last_caught_up, last.last_caught_up) >= 0:
        lag_ms = leader.last_caught_up - last.last_caught_up
    for title, value in (
        ("ClusterId", cluster_id),
        ("LeaderId", quorum.leader),
        ("LeaderEpoch", quorum.leader_epoch),
        ("HighWatermark", quorum.high_watermark),
        ("MaxFollowerLag", leader.log_end - last.log_end),
        ("MaxFollowerLagTimeMs", lag_ms),
        ("CurrentVoters", nodes_of(quorum, quorum.voters)),
        ("CurrentObservers", nodes_of(quorum, quorum.observers)),
    ):
        print(f"{f'{title}:':<24}{value}")
    return 0


def nodes_of(quorum: QuorumView, ids: Mapping[int, int]) -> str:
    """Return replicas as JSON."""
    nodes: list[dict[str, object]] = []
    for identity in ids:
        replica = quorum.replicas[identity]
        node: dict[str, object] = {"id": identity}
        if directory := directory_of(replica):
            node["directoryId"] = directory
        if endpoints := quorum.endpoints.get(identity):
            node["endpoints"] = list(endpoints)
        nodes.append(node)
    return json.dumps(nodes)


def directory_of(replica: QuorumReplica) -> str | None:
    return to_text(replica.directory) if replica.directory is not None and replica.directory.int else None


async def show_replication(human: bool, cluster: Cluster) -> int:
    quorum = await replicas.describe_quorum(cluster)
    leader = quorum.replicas[quorum.leader]
    now = cluster.runtime.clock.time_ms()
    rows = [("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status")]
    states = [(quorum.leader, "Leader")]
    states += [(one, "Follower") for one in quorum.voters if one != quorum.leader]
    states += [(one, "Observer") for one in quorum.observers]
    for identity, status in states:
        one = quorum.replicas[identity]
        fetched, caught_up = (time_text(time, now if human else None) for time in (one.last_fetch, one.last_caught_up))
        directory, lag = directory_of(one) or NO_DIRECTORY, str(leader.log_end - one.log_end)
        rows.append((str(identity), directory, str(one.log_end), lag, fetched, caught_up, status))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("".join(f"{text:<{width}}\t" for text, width in zip(row, widths, strict=True)))
    return 0


def time_text(time: int, now: int | None) -> str:
    """Return a time in ms, or, with ``now``, its distance from it."""
    return str(time) if now is None or time < 0 else f"{now - time} ms ago"
