"""A new member joins a group whose members ended and whose coordinator was killed right afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests import messages
from milena.testing.local_cluster import LocalCluster
from tests.oracle.differential.conftest import FEATURES
from tests.oracle.differential.members import joining
from tests.oracle.differential.pair import eventually
from tests.oracle.differential.replicated.conftest import CONFIG
from tests.oracle.differential.replicated.trio import BROKERS
from tests.oracle.differential.sides import CLOSED, SILENT, Line, Side
from tests.oracle.kafka_cluster import running_kafka_cluster

GROUP: Final = "of-members-that-die"
SETTINGS: Final = CONFIG | {"group.initial.rebalance.delay.ms": "0", "default.replication.factor": "3"}
SESSION: Final = 8_000
"""Session timeout of members, in milliseconds. Without it a new member waits for the rebalance timeout, 30 s."""


class Cluster(NamedTuple):
    title: str
    lines: Mapping[int, Line]
    kill: Callable[[int], None]


class Met(NamedTuple):
    """The state of the group that the new member finds."""

    generations: list[int]
    members: int
    refusals: list[ErrorCode]
    """Error codes for the members that ended."""


@contextmanager
def milena(folder: Path) -> Iterator[Cluster]:
    with LocalCluster.start(folder, brokers=3, overrides=SETTINGS, options=["--no-tier"]) as running:
        ours = {node.id: node.listeners["PLAINTEXT"].rpartition(":") for node in running.brokers}
        lines = {broker: Line(Side("Milena", ours[broker][0], int(ours[broker][2]), broker)) for broker in BROKERS}
        yield Cluster("Milena", lines, running.kill)


@contextmanager
def kafka(folder: Path) -> Iterator[Cluster]:
    with running_kafka_cluster(folder, features=FEATURES, overrides=SETTINGS) as running:
        lines = {broker: Line(Side("Kafka", *running.brokers[broker], broker)) for broker in BROKERS}
        yield Cluster("Kafka", lines, running.kill)


def ask(line: Line, key: ApiKey, version: int, **fields: Any) -> Any:
    line.send(key, version, messages.encode_request(key, version, **fields))
    return line.receive(key, version)


def coordinator(cluster: Cluster, *brokers: int) -> int:
    """Return the group's coordinator, from the first of these brokers, when that coordinator has loaded the group."""
    found: list[int] = []

    def look() -> None:
        answer = ask(cluster.lines[brokers[0]], ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[GROUP])
        (one,) = answer["coordinators"]
        assert not one["error_code"] and one["node_id"] in brokers, one
        described = ask(cluster.lines[one["node_id"]], ApiKey.DESCRIBE_GROUPS, 0, groups=[GROUP])
        assert described not in (CLOSED, SILENT)
        assert not described["groups"][0]["error_code"], described
        found.append(one["node_id"])

    eventually(look)
    return found[-1]


def enter(line: Line) -> Any:
    """Join as a new member; return the response to its second JoinGroup."""
    asked = joining(GROUP, session_timeout_ms=SESSION)
    asked["member_id"] = ask(line, ApiKey.JOIN_GROUP, 9, **asked)["member_id"]
    return ask(line, ApiKey.JOIN_GROUP, 9, **asked)


def sync(line: Line, member: str, generation: int) -> Any:
    share = [{"member_id": member, "assignment": b"all"}]
    asked = {"group_id": GROUP, "generation_id": generation, "member_id": member, "group_instance_id": None}
    return ask(line, ApiKey.SYNC_GROUP, 5, protocol_type="consumer", protocol_name="range", assignments=share, **asked)


def live(cluster: Cluster) -> tuple[Met, dict[str, float]]:
    """A member gets its assignment and ends, then its coordinator is killed, then a new member joins. Also measures the
    seconds from the kill until another broker coordinates the group, and from then to the new member's assignment."""
    first = coordinator(cluster, *BROKERS)
    dead = enter(cluster.lines[first])
    assert not sync(cluster.lines[first], dead["member_id"], dead["generation_id"])["error_code"]
    cluster.kill(first)
    killed = time.monotonic()
    second = coordinator(cluster, *(broker for broker in BROKERS if broker != first))
    loaded = time.monotonic()
    line = cluster.lines[second]
    joined = enter(line)
    assert not joined["error_code"], joined
    assert not sync(line, joined["member_id"], joined["generation_id"])["error_code"]
    seconds = {"another coordinator": loaded - killed, "assignment": time.monotonic() - loaded}
    beats = ask(
        line, ApiKey.HEARTBEAT, 4, group_id=GROUP, generation_id=dead["generation_id"], member_id=dead["member_id"]
    )
    generations = [dead["generation_id"], joined["generation_id"]]
    return Met(generations, len(joined["members"]), [ErrorCode(beats["error_code"])]), seconds


def test_ended_members_expire_one_session_timeout_after_the_next_coordinator_loaded_the_group(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    met = []
    for begin in (kafka, milena):
        with begin(tmp_path / begin.__name__) as cluster:
            found, seconds = live(cluster)
            met.append(found)
            for what, took in seconds.items():
                record_property(f"{cluster.title}: seconds until {what}", f"{took:.1f}")
            for line in cluster.lines.values():
                line.close()
    assert met == [Met([1, 2], 1, [ErrorCode.UNKNOWN_MEMBER_ID])] * 2
