"""``kafka-transactions``: the state of transactions, hanging transactions (Kafka's TransactionsCommand)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from milena.client.cluster import Cluster
from milena.client.transactions import (
    ActiveProducer,
    TransactionListing,
    abort_transaction,
    describe_producers,
    describe_transaction,
    fence_producer,
    find_hanging,
    list_transactions,
)
from milena.commands.transactions import (
    DESCRIBED,
    HANGING,
    LISTED,
    MINUTE,
    PRODUCERS,
    partitions_to_search,
    print_table,
    row_of_description,
    row_of_hanging,
    row_of_listing,
)
from milena.node.links.outgoing import ChannelError
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import TopicPartition
from milena.scripts.common.connection import BOOTSTRAP, COMMAND_CONFIG, SERVER, client_of, run
from milena.scripts.common.failures import ScriptError, failure_of
from milena.scripts.common.options import Found, Option, Parser, integer, number

T = TypeVar("T")

NAME: Final = "kafka-transactions.sh"
DEFAULT_MINUTES: Final = 15
PARSER: Final = Parser(
    f"usage: {NAME} [options] COMMAND ...\n\n"
    "This tool is used to analyze the transactional state of producers in the cluster. It can be used to detect and "
    "recover from hanging transactions.\n\n"
    "commands: list, describe, describe-producers, abort, find-hanging, forceTerminateTransaction",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("duration-filter", "list: only transactions running longer than this.", "ms", convert=number),
        Option("transactional-id-pattern", "list: only ids that match this regular expression.", "pattern"),
        Option("transactional-id", "describe: the transactional id.", "id"),
        Option("transactionalId", "forceTerminateTransaction: the transactional id.", "id"),
        Option("broker-id", "describe-producers, find-hanging: the broker to ask.", "id", convert=integer),
        Option("topic", "The topic.", "topic"),
        Option("partition", "The partition.", "partition", convert=integer),
        Option("max-transaction-timeout", "find-hanging: in minutes, 15 by default.", "minutes", convert=integer),
        Option("start-offset", "abort: start offset of the transaction.", "offset", convert=number),
        Option("producer-id", "abort: the producer id.", "id", convert=number),
        Option("producer-epoch", "abort: the producer epoch.", "epoch", convert=integer),
        Option("coordinator-epoch", "abort: the coordinator epoch.", "epoch", convert=integer),
    ],
)


def main(arguments: Sequence[str]) -> int:
    found = PARSER.parse(arguments)
    if len(found.words) != 1 or found.words[0] not in COMMANDS:
        word = found.words[0] if found.words else ""
        choices = ", ".join(f"'{name}'" for name in COMMANDS)
        raise found.wrong(f"{NAME}: error: invalid choice: '{word}' (choose from {choices})")
    required, body = COMMANDS[found.words[0]]
    for name in (*required, SERVER):
        if not found.has(name):
            raise found.wrong(f"{NAME}: error: argument --{name} is required")
    return run(client_of(found), partial(body, found), found.words[0])


async def attempt(what: str, call: Awaitable[T]) -> T:
    """Return the result of ``call``. Raises ScriptError with the text of Kafka's tool: ``what`` failed."""
    try:
        return await call
    except (KafkaError, ChannelError) as error:
        message = failure_of(error).message
        raise ScriptError(f"{what}: {message}. Enable debug logging for additional detail.") from None


async def list_all(found: Found, cluster: Cluster) -> int:
    async def call() -> list[TransactionListing]:
        try:
            return await list_transactions(
                cluster,
                longer_than_ms=found.one("duration-filter", -1),
                pattern=found.one("transactional-id-pattern"),
            )
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                raise
            text = f"ListTransactions request sent to {error.message} failed with an unexpected exception"
            raise KafkaError(error.code, text) from None

    print_table(LISTED, [row_of_listing(one) for one in await attempt("Failed to list transactions", call())])
    return 0


async def describe(found: Found, cluster: Cluster) -> int:
    name = found.one("transactional-id")

    async def call() -> tuple[object, ...]:
        try:
            description = await describe_transaction(cluster, name)
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            text = f"DescribeTransactions request for transactionalId `{name}` failed because the ID could not be found"
            raise KafkaError(error.code, text) from None
        return row_of_description(description, cluster.runtime.clock.time_ms())

    what = f"Failed to describe transaction state of transactional-id `{name}`"
    print_table(DESCRIBED, [await attempt(what, call())])
    return 0


async def producers(found: Found, cluster: Cluster) -> int:
    (topic, partition), broker = partition_of(found), found.one("broker-id")
    where = "leader" if broker is None else f"broker {broker}"
    what = f"Failed to describe producers for partition {topic}-{partition} on {where}"
    print_table(PRODUCERS, await attempt(what, describe_producers(cluster, (topic, partition), broker)))
    return 0


async def abort(found: Found, cluster: Cluster) -> int:
    topic, number = partition = partition_of(found)
    start, producer_id = found.one("start-offset"), found.one("producer-id")
    if start is None and producer_id is None:
        raise ScriptError(
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) or "
            "with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
        )
    if start is None:
        for name in ("producer-epoch", "coordinator-epoch"):
            if not found.has(name):
                raise ScriptError(f"Missing required argument --{name}")
        identity = (producer_id, found.one("producer-epoch"), found.one("coordinator-epoch"))
        producer = ActiveProducer(*identity, last_sequence=-1, last_timestamp=-1, start_offset=None)
    else:
        what = f"Failed to validate producer state for partition {topic}-{number}"
        active = await attempt(what, describe_producers(cluster, partition))
        at_start = [one for one in active if one.start_offset == start]
        if not at_start:
            raise ScriptError(
                f"Could not find any open transactions starting at offset {start} on partition {topic}-{number}"
            )
        producer = at_start[0]
    spec = (
        f"AbortTransactionSpec(topicPartition={topic}-{number}, producerId={producer.producer_id}, "
        f"producerEpoch={producer.producer_epoch}, coordinatorEpoch={max(producer.coordinator_epoch, 0)})"
    )
    await attempt(f"Failed to abort transaction {spec}", abort_transaction(cluster, partition, producer))
    return 0


async def hanging(found: Found, cluster: Cluster) -> int:
    broker, topic, partition = (found.one(name) for name in ("broker-id", "topic", "partition"))
    if topic is None and broker is None:
        raise ScriptError(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"
        )
    if partition is not None and topic is None:
        raise ScriptError("The --partition argument requires --topic to be provided")
    what = "Failed to describe 1 topics" if topic else "Failed to list topics"
    partitions = await attempt(what, partitions_to_search(cluster, topic, partition, broker))
    minutes = found.one("max-transaction-timeout", DEFAULT_MINUTES)
    search = find_hanging(cluster, partitions, open_for_ms=minutes * MINUTE, broker=broker)
    on = "Optional.empty" if broker is None else f"Optional[{broker}]"
    what = f"Failed to describe producers for {len(partitions)} partitions on broker {on}"
    now = cluster.runtime.clock.time_ms()
    print_table(HANGING, [row_of_hanging(one, now) for one in await attempt(what, search)])
    return 0


async def force_terminate(found: Found, cluster: Cluster) -> int:
    name = found.one("transactionalId")
    await attempt(f"Failed to force terminate transactionalId `{name}`", fence_producer(cluster, name))
    return 0


def partition_of(found: Found) -> TopicPartition:
    return found.one("topic"), found.one("partition")


COMMANDS: Final[Mapping[str, tuple[Sequence[str], Callable[[Found, Cluster], Coroutine[object, object, int]]]]] = {
    "list": ((), list_all),
    "describe": (("transactional-id",), describe),
    "describe-producers": (("topic", "partition"), producers),
    "abort": (("topic", "partition"), abort),
    "find-hanging": ((), hanging),
    "forceTerminateTransaction": (("transactionalId",), force_terminate),
}
