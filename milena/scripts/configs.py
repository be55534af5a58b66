"""``kafka-configs``: describe and alter configurations (Kafka's ConfigCommand)."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from milena.client import admin, replicas
from milena.client.admin import SOURCES, ConfigEntry
from milena.client.cluster import Cluster
from milena.node.links.outgoing import Channel
from milena.protocol.errors import ErrorCode, KafkaError
from milena.runtime.numbers import whole
from milena.scripts.common.connection import (
    BOOTSTRAP,
    BOOTSTRAP_CONTROLLER,
    COMMAND_CONFIG,
    CONTROLLER,
    SERVER,
    client_of,
    properties_of,
    run,
)
from milena.scripts.common.failures import PACKAGE, ScriptError
from milena.scripts.common.options import Found, Option, Parser

ILLEGAL: Final = "java.lang.IllegalArgumentException"
INVALID: Final = f"{PACKAGE}.InvalidConfigurationException"
OUTSIDE_BRACKETS: Final = r"(?=[^\]]*(?:\[|$))"
QUOTAS: Final = ("users", "clients", "ips")
FLAGS: Final = {
    "topic": "topics",
    "client": "clients",
    "user": "users",
    "broker": "brokers",
    "broker-logger": "broker-loggers",
    "ip": "ips",
    "client-metrics": "client-metrics",
    "group": "groups",
}
DEFAULTS: Final = {
    "client-defaults": "clients",
    "user-defaults": "users",
    "broker-defaults": "brokers",
    "ip-defaults": "ips",
}
TYPES: Final = {
    "topics": (admin.TOPIC_RESOURCE, "DYNAMIC_TOPIC_CONFIG"),
    "brokers": (admin.BROKER_RESOURCE, "DYNAMIC_BROKER_CONFIG"),
    "broker-loggers": (admin.LOGGER_RESOURCE, ""),
    "client-metrics": (admin.METRICS_RESOURCE, "DYNAMIC_CLIENT_METRICS_CONFIG"),
    "groups": (admin.GROUP_RESOURCE, "DYNAMIC_GROUP_CONFIG"),
}
"""By entity type: the type of the resource, and the source of the values that are shown without --all."""
PARSER: Final = Parser(
    "This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip, client-metrics or "
    "group",
    [
        BOOTSTRAP,
        BOOTSTRAP_CONTROLLER,
        COMMAND_CONFIG,
        Option("alter", "Alter the configuration of the entity."),
        Option("describe", "List the configuration of the entity."),
        Option("all", "Include defaults and static values."),
        Option("entity-type", "topics, brokers, broker-loggers, groups or client-metrics.", "type"),
        Option("entity-name", "The name of the entity: a topic, a broker id, a group.", "name"),
        Option("entity-default", "The default of all brokers."),
        Option("add-config", "Values to set: k1=v1,k2=[v1,v2],k3=v3.", "configs"),
        Option("add-config-file", "A properties file with values to set.", "file"),
        Option("delete-config", "Keys to delete: k1,k2.", "keys"),
        Option("force", "Has no effect."),
        *(Option(name, f"Short for --entity-type {kind} --entity-name.", "name") for name, kind in FLAGS.items()),
        *(Option(name, f"Short for --entity-type {kind} --entity-default.") for name, kind in DEFAULTS.items()),
    ],
)


class Entity(NamedTuple):
    """What is described or altered. ``name`` is "" for a default, None for all entities of the type."""

    kind: str
    name: str | None


def main(arguments: Sequence[str]) -> int:
    found = PARSER.parse(arguments)
    entity = entity_of(found)
    client = client_of(found)
    body = partial(describe, entity, found.has("all"), found.has(CONTROLLER))
    if found.has("alter"):
        deleted = [key.strip() for key in ",".join(found.all("delete-config")).split(",") if key]
        body = partial(alter, entity, added_of(found), deleted, found.has(CONTROLLER))
    try:
        return run(client, body, "describeConfigs")
    except ScriptError as error:
        if error.kind not in ("", ILLEGAL, INVALID):
            print(f"Error while executing config command with args '{' '.join(arguments)}'", file=sys.stderr)
        raise


def entity_of(found: Found) -> Entity:
    """Return the entity that the options name. Raises UsageError, ScriptError."""
    if found.has("alter") == found.has("describe"):
        raise found.wrong("Command must include exactly one action: --describe, --alter")
    kinds = [*found.all("entity-type"), *(kind for name, kind in (FLAGS | DEFAULTS).items() if found.has(name))]
    names = [*found.all("entity-name"), *("" for name in found.order if name == "entity-default")]
    names += [found.one(name) for name in FLAGS if found.has(name)] + ["" for name in DEFAULTS if found.has(name)]
    if not found.has(SERVER, CONTROLLER):
        raise ScriptError("Either --bootstrap-server or --bootstrap-controller must be specified.", ILLEGAL)
    if not kinds:
        raise ScriptError("At least one entity type must be specified", ILLEGAL)
    if quotas := [kind for kind in kinds if kind in QUOTAS]:
        raise ScriptError(f"--entity-type {quotas[0]} is not supported: brokers do not enforce quotas yet")
    if kinds[0] not in TYPES:
        raise ScriptError(
            f"Invalid entity type {kinds[0]}, the entity type must be one of broker-loggers, topics, clients, users, "
            "brokers, ips, client-metrics, groups with a "
            "--bootstrap-server or --bootstrap-controller argument",
            ILLEGAL,
        )
    if len(kinds) > 1 or len(names) > 1:
        raise ScriptError(f"Only one entity can be given, not {', '.join(kinds)}", ILLEGAL)
    entity = Entity(kinds[0], names[0] if names else None)
    check(found, entity)
    return entity


def check(found: Found, entity: Entity) -> None:
    """Check the options. Raises UsageError, ScriptError."""
    if found.has("alter"):
        if entity.name is None:
            raise ScriptError(f"An entity name must be specified with --alter of {entity.kind}", ILLEGAL)
        if not found.has("add-config", "add-config-file", "delete-config"):
            raise ScriptError(
                "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter",
                ILLEGAL,
            )
        if found.has("add-config") and found.has("add-config-file"):
            raise ScriptError("Only one of --add-config or --add-config-file must be specified", ILLEGAL)
    elif found.has("add-config", "add-config-file", "delete-config"):
        raise ScriptError("Add or delete configs can only be specified with --alter", ILLEGAL)
    if entity.name and entity.kind in ("brokers", "broker-loggers") and whole(entity.name) is None:
        raise ScriptError(
            f"The entity name for {entity.kind} must be a valid integer broker id, but it is: {entity.name}", ILLEGAL
        )
    if entity.name == "" and entity.kind != "brokers":
        raise ScriptError(f"{entity.kind} have no default configuration", ILLEGAL)


def added_of(found: Found) -> dict[str, str]:
    """Parse --add-config and --add-config-file. Raises ScriptError."""
    added = properties_of(found.one("add-config-file")) if found.has("add-config-file") else {}
    if found.has("add-config"):
        parts = re.split(f",{OUTSIDE_BRACKETS}", found.one("add-config"))
        pairs = [re.split(rf"\s*=\s*{OUTSIDE_BRACKETS}", part) for part in parts]
        if any(len(pair) != 2 for pair in pairs):
            raise ScriptError(
                'Invalid entity config: all configs to be added must be in the format "key=val" or  "key=[val1,val2]" '
                "to group values which contain commas.",
                ILLEGAL,
            )
        added |= {key.strip(): re.sub(r"[\[\]]", "", value).strip() for key, value in pairs}
    for key in added:
        if not re.fullmatch("[a-zA-Z0-9._-]*", key):
            raise ScriptError(f"Invalid character found for config key: {key}", ILLEGAL)
    return added


async def entries_of(cluster: Cluster, entity: Entity, channel: Channel | None, *, every: bool) -> list[ConfigEntry]:
    """Return the values of an entity, sorted by key: all, or those that were set for it. Raises KafkaError."""
    kind, source = TYPES[entity.kind]
    assert entity.name is not None
    if entity == Entity("brokers", ""):
        source = "DYNAMIC_DEFAULT_BROKER_CONFIG"
    entries = await admin.describe_configs(cluster, kind, entity.name, synonyms=True, channel=channel)
    chosen = [one for one in entries if every or not source or SOURCES.get(one.source) == source]
    return sorted(chosen, key=lambda one: one.name)


async def describe(entity: Entity, every: bool, at_controller: bool, cluster: Cluster) -> int:
    channel = await cluster.any_channel() if at_controller else None
    for one in await entities_of(cluster, entity):
        try:
            entries = await entries_of(cluster, one, channel, every=every)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            print(f"The topic '{one.name}' doesn't exist and doesn't have dynamic config.")
            continue
        if one.name:
            print(f"{'All' if every else 'Dynamic'} configs for {one.kind[:-1]} {one.name} are:")
        else:
            print(f"Default configs for {one.kind} in the cluster are:")
        for entry in entries:
            synonyms = ", ".join(
                f"{SOURCES.get(source, 'UNKNOWN')}:{name}={null(value)}" for name, value, source in entry.synonyms
            )
            sensitive = str(entry.sensitive).lower()
            print(f"  {entry.name}={null(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}")
    return 0


def null(value: str | None) -> str:
    return "null" if value is None else value


async def entities_of(cluster: Cluster, entity: Entity) -> list[Entity]:
    """Return the entity, or all of its type. Raises ScriptError, KafkaError."""
    if entity.name is not None:
        return [entity]
    match entity.kind:
        case "topics":
            names = [*(await cluster.metadata()).topics]
        case "brokers" | "broker-loggers":
            names = [str(broker.id) for broker in await replicas.list_brokers(cluster) if not broker.fenced]
            names += [""] if entity.kind == "brokers" else []
        case "groups":
            names = [*await admin.list_groups(cluster)]
        case _:
            raise ScriptError(f"--entity-name is needed with --entity-type {entity.kind}")
    return [Entity(entity.kind, name) for name in names]


async def alter(
    entity: Entity, added: Mapping[str, str], deleted: Sequence[str], at_controller: bool, cluster: Cluster
) -> int:
    channel = await cluster.any_channel() if at_controller else None
    assert entity.name is not None
    if entity.kind == "broker-loggers":
        known = {one.name for one in await entries_of(cluster, entity, channel, every=False)}
        if unknown := [key for key in (*deleted, *added) if key not in known]:
            raise ScriptError(f"Invalid broker logger(s): {','.join(unknown)}", INVALID)
    await admin.alter_configs(cluster, TYPES[entity.kind][0], entity.name, added, deleted, channel=channel)
    if entity.name:
        print(f"Completed updating config for {entity.kind[:-1]} {entity.name}.")
    else:
        print(f"Completed updating default config for {entity.kind} in the cluster.")
    return 0
