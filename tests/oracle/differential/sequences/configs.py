"""Steps that describe and change configurations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from milena.protocol.api_keys import ApiKey
from tests.oracle.differential.sequences.admin import CONFIGS, NAMES
from tests.oracle.differential.sequences.script import TAG, Step
from tests.oracle.differential.sequences.world import World

TOPIC: Final = 2
BROKER: Final = 4
METRICS: Final = 16
GROUP: Final = 32
SET, DELETE, APPEND, SUBTRACT = range(4)
LISTS: Final[Sequence[tuple[str, str]]] = (
    ("cleanup.policy", "compact"), ("cleanup.policy", "delete"), ("cleanup.policy", "delete,compact"),
    ("leader.replication.throttled.replicas", "0:1"), ("leader.replication.throttled.replicas", "0:1,1:1"),
    ("leader.replication.throttled.replicas", "*"), ("follower.replication.throttled.replicas", "x"),
    ("leader.replication.throttled.replicas", "0:1,"), ("retention.ms", "1"),
)  # fmt: skip
OF_BROKERS: Final[Sequence[tuple[str, str]]] = (
    ("log.cleaner.delete.retention.ms", "9"), ("leader.replication.throttled.rate", "7"),
    ("log.cleaner.delete.retention.ms", "x"), ("node.id", "7"), ("no.such.key", "1"), ("num.io.threads", "0"),
)  # fmt: skip
REALLY: Final = 2
"""The first so many pairs may be applied; the others are only validated."""


def _resource(world: World) -> tuple[int, str]:
    name = world.topic(0.1)
    return world.of(
        (TOPIC, name), (TOPIC, name), (TOPIC, name), (TOPIC, name), (TOPIC, name), (BROKER, "1"), (BROKER, ""),
        world.of((BROKER, "9"), (BROKER, "x"), (METRICS, f"{TAG}-m"), (GROUP, f"{TAG}-g"), (0, "x"), (99, "x"),
                 (METRICS, ""), (GROUP, "")),
    )  # fmt: skip


def incrementally(world: World) -> Step:
    resources, only_valid = [], world.chance(0.2)
    for kind, name in sorted({_resource(world) for _ in range(world.of(1, 1, 1, 2))}):
        changes = dict(_change(world, kind) for _ in range(world.of(1, 1, 2, 3)))
        # CreateTopics returns a broker's own values if it is also the controller, as Kafka's broker is here.
        if kind == BROKER and name:
            only_valid = True
        if kind == BROKER and any((key, value) not in OF_BROKERS[:REALLY] for key, (_, value) in changes.items()):
            only_valid = True
        configs = [{"name": key, "config_operation": op, "value": value} for key, (op, value) in changes.items()]
        resources.append({"resource_type": kind, "resource_name": name, "configs": configs})
    _time_may_change(world, resources)
    return world.step(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        world.version(ApiKey.INCREMENTAL_ALTER_CONFIGS),
        resources=resources,
        validate_only=only_valid,
    )


def _change(world: World, kind: int) -> tuple[str, tuple[int, str | None]]:
    if kind == BROKER:
        key, value = world.one(OF_BROKERS)
        return key, (world.of(SET, SET, SET, DELETE), value)
    if world.chance(0.35):
        key, value = world.one(LISTS)
        return key, (world.of(APPEND, SUBTRACT, APPEND, SET), value)
    key, value = world.one(CONFIGS)
    operation = world.of(SET, SET, SET, DELETE)
    given = operation == SET if world.chance(0.94) else operation != SET
    return key, (operation, value if given else None)


def wholly(world: World) -> Step:
    resources, only_valid = [], world.chance(0.2)
    for kind, name in sorted({_resource(world) for _ in range(world.of(1, 1, 1, 2))}):
        only_valid = only_valid or kind == BROKER
        chosen = OF_BROKERS if kind == BROKER else CONFIGS
        configs = dict(world.one(chosen) for _ in range(world.of(0, 1, 1, 2)))
        values = [{"name": key, "value": value} for key, value in configs.items()]
        resources.append({"resource_type": kind, "resource_name": name, "configs": values})
    _time_may_change(world, resources)
    version = world.version(ApiKey.ALTER_CONFIGS)
    return world.step(ApiKey.ALTER_CONFIGS, version, resources=resources, validate_only=only_valid)


def _time_may_change(world: World, resources: Sequence[dict[str, Any]]) -> None:
    """After a topic may have had LogAppendTime, no request to it may depend on timestamps."""
    for resource in resources:
        topic = world.topics.get(resource["resource_name"])
        if topic is not None and any(one["name"] == "message.timestamp.type" for one in resource["configs"]):
            topic.append_time = True


def describe(world: World) -> Step:
    resources = []
    for kind, name in sorted({_resource(world) for _ in range(world.of(1, 1, 2))}):
        keys = [key for key, _ in world.dice.sample(CONFIGS, 3)] if world.chance(0.5) or kind != TOPIC else None
        if kind == BROKER:
            keys = [key for key, _ in OF_BROKERS if key != "node.id"]
        resources.append({"resource_type": kind, "resource_name": name, "configuration_keys": keys})
    return world.step(
        ApiKey.DESCRIBE_CONFIGS,
        world.version(ApiKey.DESCRIBE_CONFIGS),
        resources=resources,
        include_synonyms=world.chance(0.6),
        include_documentation=world.chance(0.2),
    )


def list_resources(world: World) -> Step:
    kinds = world.of([GROUP], [METRICS], [METRICS, GROUP], [99])
    version = world.version(ApiKey.LIST_CONFIG_RESOURCES)
    return world.step(ApiKey.LIST_CONFIG_RESOURCES, version, resource_types=kinds)


def looks(world: World) -> list[Step]:
    """Describe all configurations of the topics at the end of the script."""
    wanted = [{"resource_type": TOPIC, "resource_name": name, "configuration_keys": None} for name in NAMES]
    return [world.step(ApiKey.DESCRIBE_CONFIGS, 4, resources=wanted, include_synonyms=False)]


STEPS: Final[Sequence[tuple[int, Callable[[World], Step]]]] = (
    (12, incrementally), (7, wholly), (9, describe), (1, list_resources),
)  # fmt: skip
