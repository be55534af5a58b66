"""Topics, leaders, reassignments, segments in the tier, and records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final

from fastapi import APIRouter, HTTPException, Query
from pydantic import Field

from milena.client import admin, replicas
from milena.console.context import Context, Int32, Number, Shared, Strict, Text, not_found
from milena.console.lab_place import LabNode
from milena.console.node_link import call_once
from milena.console.records import NewRecord, Wanted, produce, read
from milena.protocol.errors import ErrorCode, KafkaError

router = APIRouter(tags=["topics"])

TIER_SECONDS: Final = 30.0
MOST_SEGMENTS: Final = 1000


class NewTopic(Strict):
    """A topic to create. -1 takes the cluster's default."""

    name: str = Field(min_length=1, max_length=249)
    partitions: int = Field(default=-1, ge=-1, le=100_000)
    replication_factor: int = Field(default=-1, ge=-1, le=1000)
    assignments: dict[Int32, list[Int32]] = Field(default={}, description="the replicas of each partition")
    configs: dict[Text, Text] = Field(default={})


class Election(Strict):
    """An election of one partition's leader."""

    topic: Text
    partition: Number
    unclean: bool = Field(default=False, description="elect a replica outside of the ISR if there is no other")


class Reassignment(Strict):
    """The replicas that a partition shall have; null cancels a reassignment."""

    topic: Text
    partition: Number
    replicas: list[Int32] | None


@router.post("/api/topics")
async def create_topic(context: Shared, topic: NewTopic) -> dict[str, Any]:
    """Create a topic."""
    new = admin.NewTopic(topic.name, topic.partitions, topic.replication_factor, topic.assignments, topic.configs)
    raise_first((await admin.create_topics(context.client, [new])).values())
    return _done(context, f"create topic {topic.name}", topic.name)


@router.delete("/api/topics/{topic}")
async def delete_topic(context: Shared, topic: str) -> dict[str, Any]:
    """Delete a topic."""
    raise_first((await admin.delete_topics(context.client, [topic])).values())
    return _done(context, f"delete topic {topic}", topic)


@router.get("/api/topics/{topic}/configs")
async def topic_configs(context: Shared, topic: str) -> dict[str, str | None]:
    """The configuration of a topic: the values that apply, by key."""
    return {one.name: one.value for one in await admin.describe_configs(context.client, admin.TOPIC_RESOURCE, topic)}


@router.post("/api/topics/{topic}/configs")
async def alter_topic_configs(context: Shared, topic: str, values: dict[Text, Text | None]) -> dict[str, Any]:
    """Set configuration values of a topic; null removes one."""
    given = {key: value for key, value in values.items() if value is not None}
    removed = [key for key, value in values.items() if value is None]
    await admin.alter_configs(context.client, admin.TOPIC_RESOURCE, topic, given, removed)
    return _done(context, f"configure topic {topic}", topic)


@router.post("/api/elect")
async def elect(context: Shared, election: Election) -> dict[str, Any]:
    """Elect the preferred leader of a partition, or an unclean one."""
    partition = (election.topic, election.partition)
    outcome = await replicas.elect_leaders(context.client, [partition], unclean=election.unclean)
    raise_first(outcome.values())
    kind = "unclean" if election.unclean else "preferred"
    return _done(context, f"{kind} election of {_name(partition)}", election.topic)


@router.post("/api/reassign")
async def reassign(context: Shared, wanted: Reassignment) -> dict[str, Any]:
    """Begin to move the replicas of a partition, or cancel that."""
    partition = (wanted.topic, wanted.partition)
    raise_first((await replicas.alter_reassignments(context.client, {partition: wanted.replicas})).values())
    return _done(context, f"reassign {_name(partition)} to {wanted.replicas}", wanted.topic)


def raise_first(outcomes: Iterable[KafkaError | None]) -> None:
    """Raise the first error among the outcomes of partitions or topics."""
    for error in outcomes:
        if error is not None:
            raise error


def _name(partition: tuple[str, int]) -> str:
    return f"{partition[0]}-{partition[1]}"


def _done(context: Context, text: str, topic: str) -> dict[str, Any]:
    context.model.feed.add("action", text, topic=topic)
    context.watch.soon()
    return {"ok": {}}


# -- segments


@router.get("/api/topics/{topic}/segments")
async def segments(
    context: Shared,
    topic: str,
    partition: Annotated[int, Query(ge=0)] = 0,
    after: Annotated[int, Query(ge=0, description="the number of segments to skip: `next` of the last page")] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_SEGMENTS)] = 100,
) -> dict[str, Any]:
    """The segments of a partition in the tier, with their leader epochs, as its leader knows them."""
    node = await leader_node(context, topic, partition)
    asked = {"topic": topic, "partition": partition}
    found = await call_once(node.socket, node.name, "remote_segments", TIER_SECONDS, **asked)
    end = after + limit
    return {"segments": found[after:end], "next": end if end < len(found) else None, "broker": node.entry["id"]}


async def leader_node(context: Context, topic: str, partition: int) -> LabNode:
    """Return the node that leads a partition. Raises HTTPException, KafkaError."""
    known = await context.client.topic(topic, fresh=True)
    if partition not in known.partitions:
        raise not_found(f"{topic} has the partitions 0 to {len(known.partitions) - 1}, not {partition}")
    leader = known.partitions[partition].leader
    for node in context.place.nodes().values():
        if isinstance(node, LabNode) and node.entry["id"] == leader:
            return node
    if leader < 0:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
    raise HTTPException(409, f"segments are known to lab commands only, and broker {leader} has no socket for them")


# -- records


@router.get("/api/topics/{topic}/records")
async def records(context: Shared, topic: str, wanted: Annotated[Wanted, Query()]) -> dict[str, Any]:
    """Records of a partition, or of all: from an offset or a time on, or those with a key. `next` continues."""
    return await read(context.client, topic, wanted)


@router.post("/api/topics/{topic}/records")
async def produce_record(context: Shared, topic: str, record: NewRecord) -> dict[str, Any]:
    """Write one record with acks=all, and return its partition and offset."""
    partition, offset = await produce(context.client, topic, record)
    context.watch.soon()
    return {"ok": {"partition": partition, "offset": offset}}
