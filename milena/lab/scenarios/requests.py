"""Requests that a scenario itself sends, as a broker or as a consumer.

::

    propose: {by: A, isr: {A: $A1, B: $B2}, error: INELIGIBLE_REPLICA}
             AlterPartition with each member's broker epoch. The leader's, the partition's and the sender's epochs are
             the present ones, or ``leader_epoch`` and ``partition_epoch``; ``version: 2`` has no broker epochs.
    fetch:   {to: A, by: B, broker_epoch: $B1, offset: 3, last_epoch: 0, answer: {...}}
             Without ``by`` as a consumer. ``version`` is 15 by default; earlier ones have no broker epoch.
    ask:     {to: A, api: UPDATE_FEATURES, version: 1, fields: {...}, answer: {...}}

``error`` and ``answer`` are the expected response; without ``error`` it must be NONE.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NotRequired, TypedDict

from milena.lab.scenarios.driver import CONTROLLER
from milena.lab.scenarios.exchanges import mismatch, renumbered
from milena.lab.scenarios.script import Fields, node_id
from milena.lab.scenarios.stage import PARTITION, ScenarioFailed, Stage
from milena.node.rules.tracing import plain
from milena.node.serving.lab_commands import api_of
from milena.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from milena.protocol.apis import (
        AlterPartitionRequestFields,
        AlterPartitionRequestPartitionDataFields,
        FetchPartitionFields,
        FetchRequestFields,
    )

NONE: Final = "NONE"
WITH_EPOCHS: Final = 3
"""The version of AlterPartition that names the members' broker epochs."""
WITH_REPLICA_STATE: Final = 15
"""The version of Fetch in which a replica names its broker epoch."""
CONSUMER: Final = -1
MAX_BYTES: Final = 1 << 20


class Asked(TypedDict):
    """The common arguments: the node, and the expected response."""

    to: str
    version: NotRequired[int]
    error: NotRequired[str]
    answer: NotRequired[Fields]


class Ask(Asked):
    """The arguments of ``ask``."""

    api: str
    fields: Fields


class Propose(TypedDict):
    """The arguments of ``propose``. ``isr``: members with their broker epochs."""

    by: str
    isr: Mapping[str, int]
    version: NotRequired[int]
    leader_epoch: NotRequired[int]
    partition_epoch: NotRequired[int]
    error: NotRequired[str]


class FetchOnce(Asked):
    """The arguments of ``fetch``."""

    offset: int
    by: NotRequired[str]
    broker_epoch: NotRequired[int]
    leader_epoch: NotRequired[int]
    last_epoch: NotRequired[int]


async def ask(stage: Stage, arguments: Ask) -> None:
    api, version = api_of(arguments["api"]), arguments.get("version")
    await _asked(stage, arguments["to"], api, version, arguments["fields"], arguments.get("answer", {}))


async def propose(stage: Stage, arguments: Propose) -> None:
    isr = {node_id(member): epoch for member, epoch in arguments["isr"].items()}
    version, sender = arguments.get("version", WITH_EPOCHS), arguments["by"]
    now, registered = await stage.partition(), await stage.registration(sender)
    if registered is None:
        raise ScenarioFailed(f"{sender} is not registered and cannot propose")
    partition: AlterPartitionRequestPartitionDataFields = {
        "partition_index": PARTITION,
        "leader_recovery_state": 0,
        "leader_epoch": arguments.get("leader_epoch", now["leader_epoch"]),
        "partition_epoch": arguments.get("partition_epoch", now["partition_epoch"]),
    }
    if version >= WITH_EPOCHS:
        partition["new_isr_with_epochs"] = [
            {"broker_id": member, "broker_epoch": epoch} for member, epoch in isr.items()
        ]
    else:
        partition["new_isr"] = list(isr)
    fields: AlterPartitionRequestFields = {
        "broker_id": node_id(sender),
        "broker_epoch": registered["epoch"],
        "topics": [{"topic_id": stage.topic_id, "partitions": [partition]}],
    }
    error = arguments.get("error", NONE)
    expected = {"error_code": error} | ({"isr": sorted(isr)} if error == NONE else {})
    await _asked(stage, CONTROLLER, ApiKey.ALTER_PARTITION, version, fields, {"partitions": expected})


async def fetch(stage: Stage, arguments: FetchOnce) -> None:
    version = arguments.get("version", WITH_REPLICA_STATE)
    replica = node_id(arguments["by"]) if "by" in arguments else CONSUMER
    partition: FetchPartitionFields = {
        "partition": PARTITION,
        "current_leader_epoch": arguments.get("leader_epoch", -1),
        "fetch_offset": arguments["offset"],
        "last_fetched_epoch": arguments.get("last_epoch", -1),
        "log_start_offset": -1 if replica == CONSUMER else 0,
        "partition_max_bytes": MAX_BYTES,
    }
    fields: FetchRequestFields = {
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": MAX_BYTES,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic_id": stage.topic_id, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    if version < WITH_REPLICA_STATE:
        fields["replica_id"] = replica
    elif replica != CONSUMER:
        fields["replica_state"] = {"replica_id": replica, "replica_epoch": arguments["broker_epoch"]}
    expected = {"error_code": arguments.get("error", NONE), **arguments.get("answer", {})}
    await _asked(stage, arguments["to"], ApiKey.FETCH, version, fields, {"partitions": expected})


async def _asked(
    stage: Stage, node: str, api: ApiKey, version: int | None, fields: Mapping[str, object], expected: Fields
) -> None:
    response = await stage.ask(node, api, version, **fields)
    numbers = None if stage.numbering is None else stage.numbering.numbers
    if reason := mismatch(expected, renumbered(plain(response), numbers)):
        raise ScenarioFailed(f"{api.name} to {node}: {reason}")
