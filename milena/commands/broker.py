"""`milena broker`: which brokers there are, and farewell to one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from milena.command_line.errors import UserError
from milena.command_line.options import CommandLine, Option, Positional, Values
from milena.command_line.table import say
from milena.commands.client import BOOTSTRAP, explain, run_one_of
from milena.node.client.cluster import Cluster
from milena.node.client.replicas import list_brokers, unregister_broker
from milena.protocol.errors import KafkaError

LIST = CommandLine("broker list", "List the registered brokers, with what they lead and hold.", [BOOTSTRAP])
UNREGISTER = CommandLine(
    "broker unregister",
    "Forget a broker that will not come back. Its replicas stay assigned to it until they are reassigned.",
    [BOOTSTRAP, Option("--force", "even if it runs: it stays out until it is started anew")],
    [Positional("BROKER", "its id")],
    ["milena broker unregister 3"],
)


def main(arguments: Sequence[str]) -> int:
    return run_one_of("broker", {"list": (LIST, list_all), "unregister": (UNREGISTER, unregister)}, arguments)


async def list_all(values: Values, cluster: Cluster) -> int:
    partitions = [one for topic in (await cluster.metadata()).topics.values() for one in topic.partitions.values()]
    leads = Counter(one.leader for one in partitions)
    holds = Counter(broker for one in partitions for broker in one.replicas)
    say(f"  {'broker':>6}  {'state':<7}  {'address':<24}  {'rack':<12}  {'leads':>6}  {'replicas':>8}")
    for one in sorted(await list_brokers(cluster), key=lambda broker: broker.id):
        state, address = "fenced" if one.fenced else "active", f"{one.host}:{one.port}"
        numbers = f"{leads[one.id]:>6}  {holds[one.id]:>8}"
        say(f"  {one.id:>6}  {state:<7}  {address:<24}  {one.rack or '-':<12}  {numbers}")
    return 0


async def unregister(values: Values, cluster: Cluster) -> int:
    if not values.broker.isdecimal():
        raise UserError(f"broker {values.broker}: not a broker id")
    number = int(values.broker)
    running = [one.id for one in await list_brokers(cluster) if one.id == number and not one.fenced]
    if running and not values.force:
        raise UserError(f"broker {number} is active; stop it first, or say --force")
    try:
        await unregister_broker(cluster, number)
    except KafkaError as error:
        raise UserError(f"broker {number}: {explain(error)}") from None
    say(f"broker {number}: unregistered")
    return 0
