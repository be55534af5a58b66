"""`milena broker`: list, describe, configure and unregister brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.replicas import list_brokers, unregister_broker
from milena.command_line.errors import UsageError, UserError
from milena.command_line.options import CommandLine, Option, Positional, Values, key_value, nearest
from milena.command_line.table import say, show_json
from milena.commands.client import BOOTSTRAP, JSON, await_controller, explain, run_one_of
from milena.protocol.errors import KafkaError
from milena.runtime.numbers import whole

DEFAULTS = Option("--default", "the cluster-wide default, for brokers without a value of their own")
BROKER = Positional("BROKER", "its id", optional=True)
LIST = CommandLine(
    "broker list", "List the registered brokers with the numbers of their leaderships and replicas.", [BOOTSTRAP, JSON]
)
DESCRIBE = CommandLine(
    "broker describe",
    "Show the non-default configuration of a broker, and the source of each value.",
    [BOOTSTRAP, JSON, DEFAULTS, Option("--all", "show all keys, including those with Kafka's default")],
    [BROKER],
    ["milena broker describe 1", "milena broker describe 1 --all --json", "milena broker describe --default"],
)
ALTER = CommandLine(
    "broker alter",
    "Set or delete dynamic configurations of a broker, or of all brokers.",
    [
        BOOTSTRAP,
        DEFAULTS,
        Option("--config", "a broker configuration, by Kafka's key", "K=V", many=True, convert=key_value),
        Option("--delete-config", "delete the dynamic value of a key", "KEY", many=True),
    ],
    [BROKER],
    [
        "milena broker alter 1 --config num.io.threads=4",
        "milena broker alter --default --delete-config log.retention.ms",
    ],
)
UNREGISTER = CommandLine(
    "broker unregister",
    "Remove the registration of a broker. Its replicas stay assigned to it until they are reassigned.",
    [BOOTSTRAP, JSON, Option("--force", "even if it is running: it rejoins only after a restart")],
    [Positional("BROKER", "its id")],
    ["milena broker unregister 3"],
)


def main(arguments: Sequence[str]) -> int:
    commands = {
        "list": (LIST, list_all),
        "describe": (DESCRIBE, describe),
        "alter": (ALTER, alter),
        "unregister": (UNREGISTER, unregister),
    }
    return run_one_of("broker", commands, arguments)


async def list_all(values: Values, cluster: Cluster) -> int:
    partitions = [one for topic in (await cluster.metadata()).topics.values() for one in topic.partitions.values()]
    leads = Counter(one.leader for one in partitions)
    holds = Counter(broker for one in partitions for broker in one.replicas)
    brokers = sorted(await list_brokers(cluster), key=lambda broker: broker.id)
    if values.json:
        show_json(
            [
                {
                    "id": one.id,
                    "state": state_of(fenced=one.fenced),
                    "host": one.host,
                    "port": one.port,
                    "rack": one.rack,
                    "leads": leads[one.id],
                    "replicas": holds[one.id],
                }
                for one in brokers
            ]
        )
        return 0
    say(f"  {'broker':>6}  {'state':<7}  {'address':<24}  {'rack':<12}  {'leads':>6}  {'replicas':>8}")
    for one in brokers:
        state, address = state_of(fenced=one.fenced), f"{one.host}:{one.port}"
        numbers = f"{leads[one.id]:>6}  {holds[one.id]:>8}"
        say(f"  {one.id:>6}  {state:<7}  {address:<24}  {one.rack or '-':<12}  {numbers}")
    return 0


def state_of(*, fenced: bool) -> str:
    return "fenced" if fenced else "active"


async def describe(values: Values, cluster: Cluster) -> int:
    name = resource_of(values)
    entries = await configs_of(cluster, name)
    if not values.all:
        entries = [one for one in entries if one.source != admin.DEFAULT_CONFIG]
    entries.sort(key=lambda one: one.name)
    if values.json:
        show_json(
            [
                {
                    "name": one.name,
                    "value": one.value,
                    "source": admin.SOURCES.get(one.source, str(one.source)),
                    "read_only": one.read_only,
                    "sensitive": one.sensitive,
                }
                for one in entries
            ]
        )
        return 0
    width = max((len(one.name) for one in entries), default=0)
    for one in entries:
        value = "(sensitive)" if one.sensitive and one.value is None else one.value
        say(f"  {one.name:<{width}}  {admin.SOURCES.get(one.source, one.source):<29}  {value}")
    if not entries:
        say("no configuration is set")
    return 0


async def alter(values: Values, cluster: Cluster) -> int:
    if not values.config and not values.delete_config:
        raise UsageError("milena broker alter needs --config or --delete-config")
    name = resource_of(values)
    if values.delete_config:
        # brokers accept the deletion of a key that does not exist; a user has probably mistyped it
        known = [one.name for one in await configs_of(cluster, name or await any_broker(cluster))]
        for key in values.delete_config:
            if key not in known:
                raise UserError(f"--delete-config {key}: no such broker configuration{nearest(key, known)}")
    await await_controller(cluster)
    try:
        await admin.alter_configs(cluster, admin.BROKER_RESOURCE, name, dict(values.config), values.delete_config)
    except KafkaError as error:
        raise UserError(f"{text_of_resource(name)}: {explain(error)}") from None
    return 0


async def configs_of(cluster: Cluster, name: str) -> list[admin.ConfigEntry]:
    """Return the configuration of a broker, or the cluster-wide default (""). Raises UserError."""
    try:
        return await admin.describe_configs(cluster, admin.BROKER_RESOURCE, name)
    except KafkaError as error:
        raise UserError(f"{text_of_resource(name)}: {explain(error)}") from None


async def any_broker(cluster: Cluster) -> str:
    return str(min((await cluster.metadata([])).brokers))


def resource_of(values: Values) -> str:
    """Return the name of the resource: a broker id, or "" for the cluster-wide default. Raises UsageError."""
    if (values.broker is not None) == values.default:
        raise UsageError("name one broker by its id, or use --default for the cluster-wide default")
    return "" if values.broker is None else str(number_of(values.broker))


def text_of_resource(name: str) -> str:
    return f"broker {name}" if name else "the cluster-wide default"


def number_of(text: str) -> int:
    """Parse a broker id. Raises UserError."""
    number = whole(text)
    if number is None or number < 0:
        raise UserError(f"broker {text}: not a broker id")
    return number


async def unregister(values: Values, cluster: Cluster) -> int:
    number = number_of(values.broker)
    running = [one.id for one in await list_brokers(cluster) if one.id == number and not one.fenced]
    if running and not values.force:
        raise UserError(f"broker {number} is active; stop it first, or use --force")
    try:
        await unregister_broker(cluster, number)
    except KafkaError as error:
        raise UserError(f"broker {number}: {explain(error)}") from None
    if values.json:
        show_json({"broker": number, "unregistered": True})
    else:
        say(f"broker {number}: unregistered")
    return 0
