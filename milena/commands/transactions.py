"""`milena transactions`: list and describe transactions, find and abort hanging ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from milena.client.cluster import Cluster
from milena.client.transactions import (
    ActiveProducer,
    OpenTransaction,
    TransactionDescription,
    TransactionListing,
    abort_transaction,
    describe_producers,
    describe_transaction,
    fence_producer,
    find_hanging,
    list_transactions,
    owner_of,
    producer_at,
)
from milena.command_line.errors import UsageError, UserError
from milena.command_line.options import CommandLine, Option, Positional, Values
from milena.command_line.table import say, show_json
from milena.commands.client import BOOTSTRAP, JSON, run_one_of
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import TopicPartition
from milena.runtime.printable import printable

MINUTE: Final = 60_000
LISTED: Final = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
DESCRIBED: Final = (
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
)
PRODUCERS: Final = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)
HANGING: Final = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
)
"""The columns of Kafka's TransactionsCommand."""
NONE: Final = "None"
STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "PrepareEpochFence",
    "CompleteCommit",
    "CompleteAbort",
)
"""The states of Kafka's coordinator (``TransactionState``) except Dead, which it does not list."""

TOPIC = Option("--topic", "the topic", "TOPIC")
PARTITION = Option("--partition", "the number of the partition", "N", convert=int)
BROKER = Option("--broker-id", "ask the replica on this broker instead of the leader", "ID", convert=int)

LIST = CommandLine(
    "transactions list",
    "List the transactional ids of all coordinators.",
    [
        BOOTSTRAP,
        JSON,
        Option("--state", f"only in this state: {', '.join(STATES)}", "STATE", many=True),
        Option("--producer-id", "only of this producer id", "ID", many=True, convert=int),
        Option(
            "--duration-filter",
            "only ids whose last transaction began longer ago than this, also if it has ended, and ids without one",
            "MS",
            convert=int,
        ),
        Option("--transactional-id-pattern", "only ids that match this regular expression (RE2) as a whole", "PATTERN"),
    ],
    examples=["milena transactions list --state Ongoing --duration-filter 60000"],
)
DESCRIBE = CommandLine(
    "transactions describe",
    "Show the state of a transactional id, and the partitions of its transaction.",
    [BOOTSTRAP, JSON],
    [Positional("TRANSACTIONAL_ID", "the transactional id")],
    ["milena transactions describe payments"],
)
DESCRIBE_PRODUCERS = CommandLine(
    "transactions describe-producers",
    "Show the producers that a partition keeps the state of, and where their open transactions begin.",
    [BOOTSTRAP, JSON, TOPIC, PARTITION, BROKER],
    examples=["milena transactions describe-producers --topic orders --partition 0"],
)
FIND_HANGING = CommandLine(
    "transactions find-hanging",
    "Find transactions that no coordinator will end: they hold back read_committed consumers until they are aborted.\n"
    "Searches the partitions of --topic, or of --broker-id, or both.",
    [
        BOOTSTRAP,
        JSON,
        TOPIC,
        PARTITION,
        Option("--broker-id", "only partitions with a replica on this broker, and as seen by it", "ID", convert=int),
        Option(
            "--max-transaction-timeout",
            "only transactions whose last record is older than this",
            "MINUTES",
            convert=int,
            default=15,
        ),
    ],
    examples=["milena transactions find-hanging --topic orders", "milena transactions find-hanging --broker-id 1"],
)
ABORT = CommandLine(
    "transactions abort",
    "Abort a hanging transaction in one partition: the transaction that begins at --start-offset, or, without a\n"
    "search, the transaction of a producer id and epoch. A transaction that its coordinator will end is refused:\n"
    "end it with force-terminate.",
    [
        BOOTSTRAP,
        TOPIC,
        PARTITION,
        Option("--start-offset", "the first offset of the transaction", "OFFSET", convert=int),
        Option("--producer-id", "the producer id", "ID", convert=int),
        Option("--producer-epoch", "its epoch", "EPOCH", convert=int),
        Option("--coordinator-epoch", "the epoch of the coordinator", "EPOCH", convert=int),
        Option("--force", "do not ask the coordinators, as kafka-transactions.sh does not: a transaction may be torn"),
    ],
    examples=["milena transactions abort --topic orders --partition 0 --start-offset 1234"],
)
FORCE_TERMINATE = CommandLine(
    "transactions force-terminate",
    "Abort the open transaction of a transactional id, and fence its producer.",
    [BOOTSTRAP],
    [Positional("TRANSACTIONAL_ID", "the transactional id")],
    ["milena transactions force-terminate payments"],
)


def main(arguments: Sequence[str]) -> int:
    commands = {
        "list": (LIST, list_all),
        "describe": (DESCRIBE, describe),
        "describe-producers": (DESCRIBE_PRODUCERS, producers),
        "find-hanging": (FIND_HANGING, hanging),
        "abort": (ABORT, abort),
        "force-terminate": (FORCE_TERMINATE, force_terminate),
    }
    return run_one_of("transactions", commands, arguments)


async def list_all(values: Values, cluster: Cluster) -> int:
    for state in values.state:
        if state not in STATES:
            raise UsageError(f"--state {state}: one of {', '.join(STATES)}")
    try:
        listed = await listed_by(values, cluster)
    except KafkaError as error:
        if error.code is not ErrorCode.INVALID_REGULAR_EXPRESSION:
            raise
        pattern = values.transactional_id_pattern
        raise UserError(f"--transactional-id-pattern {pattern}: not a regular expression (RE2)") from None
    if values.json:
        show_json([one._asdict() for one in listed])
    else:
        print_table(LISTED, [row_of_listing(one) for one in listed])
    return 0


async def listed_by(values: Values, cluster: Cluster) -> list[TransactionListing]:
    """Return the transactional ids that the options select. Raises KafkaError."""
    return await list_transactions(
        cluster,
        states=values.state,
        producer_ids=values.producer_id,
        longer_than_ms=-1 if values.duration_filter is None else values.duration_filter,
        pattern=values.transactional_id_pattern,
    )


async def describe(values: Values, cluster: Cluster) -> int:
    found = await description_of(cluster, values.transactional_id)
    if values.json:
        partitions = [{"topic": topic, "partition": number} for topic, number in found.partitions]
        show_json(asdict(found) | {"partitions": partitions})
    else:
        print_table(DESCRIBED, [row_of_description(found, cluster.runtime.clock.time_ms())])
    return 0


async def description_of(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    """Return a transactional id as its coordinator describes it. Raises KafkaError, and UserError for an unknown id."""
    try:
        return await describe_transaction(cluster, transactional_id)
    except KafkaError as error:
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        raise UserError(f"no coordinator knows the transactional id {transactional_id}") from None


async def producers(values: Values, cluster: Cluster) -> int:
    found = await describe_producers(cluster, partition_of(values), values.broker_id)
    if values.json:
        show_json([one._asdict() for one in found])
    else:
        print_table(PRODUCERS, found)
    return 0


async def hanging(values: Values, cluster: Cluster) -> int:
    if values.topic is None and values.partition is not None:
        raise UsageError("--partition needs --topic")
    if values.topic is None and values.broker_id is None:
        raise UsageError("milena transactions find-hanging needs --topic or --broker-id")
    partitions = await partitions_to_search(cluster, values.topic, values.partition, values.broker_id)
    found = await find_hanging(
        cluster, partitions, open_for_ms=values.max_transaction_timeout * MINUTE, broker=values.broker_id
    )
    if values.json:
        show_json([{"topic": topic, "partition": number} | one._asdict() for (topic, number), one in found])
    else:
        now = cluster.runtime.clock.time_ms()
        print_table(HANGING, [row_of_hanging(one, now) for one in found])
    return 0


async def partitions_to_search(
    cluster: Cluster, topic: str | None, partition: int | None, broker: int | None
) -> list[TopicPartition]:
    """Return a partition, or the partitions of a topic or of all topics that have a replica on ``broker``. Raises
    KafkaError."""
    if topic is not None and partition is not None:
        return [(topic, partition)]
    if topic is not None:
        views = [await cluster.topic(topic, fresh=True)]
    else:
        views = list((await cluster.metadata(None)).topics.values())
    return [
        (view.name, number)
        for view in sorted(views, key=lambda view: view.name)
        for number, info in sorted(view.partitions.items())
        if broker is None or broker in info.replicas
    ]


async def abort(values: Values, cluster: Cluster) -> int:
    topic, number = partition = partition_of(values)
    if values.start_offset is not None:
        producer = await open_producer(cluster, partition, values.start_offset)
    else:
        options = ("producer_id", "producer_epoch", "coordinator_epoch")
        if any(getattr(values, option) is None for option in options):
            raise UsageError(
                "milena transactions abort needs --start-offset, or --producer-id, --producer-epoch and "
                "--coordinator-epoch"
            )
        identity = (values.producer_id, values.producer_epoch, values.coordinator_epoch)
        producer = ActiveProducer(*identity, last_sequence=-1, last_timestamp=-1, start_offset=None)
    if not values.force:
        await check_hanging(cluster, partition, producer)
    await abort_transaction(cluster, partition, producer)
    say(f"{topic}-{number}: aborted the transaction of producer id {producer.producer_id}")
    return 0


async def open_producer(cluster: Cluster, partition: TopicPartition, start: int) -> ActiveProducer:
    """Return the producer whose open transaction begins at an offset. Raises UserError if there is none."""
    producer = await producer_at(cluster, partition, start)
    if producer is None:
        raise UserError(
            f"Could not find any open transactions starting at offset {start} on partition "
            f"{partition[0]}-{partition[1]}"
        )
    return producer


async def check_hanging(cluster: Cluster, partition: TopicPartition, producer: ActiveProducer) -> None:
    """Raises UserError if a coordinator will end the transaction, KafkaError."""
    owner = await owner_of(cluster, partition, producer)
    if owner is not None:
        name = owner.transactional_id
        raise UserError(
            f"{partition[0]}-{partition[1]}: broker {owner.coordinator} will end the transaction of {name} "
            f"({owner.state}). `milena transactions force-terminate {name}` ends it at once; --force aborts it only in "
            "this partition"
        )


async def force_terminate(values: Values, cluster: Cluster) -> int:
    """Kafka's tool initializes an id that no coordinator knows, and so creates it; this is an error here."""
    found = await description_of(cluster, values.transactional_id)
    await fence_producer(cluster, values.transactional_id)
    ended = "the transaction is aborted" if found.state == "Ongoing" else "no transaction was open"
    say(f"{values.transactional_id}: {ended}, and the producer is fenced")
    return 0


def partition_of(values: Values) -> TopicPartition:
    """Return the partition of --topic and --partition. Raises UsageError if one of them is missing."""
    if values.topic is None or values.partition is None:
        raise UsageError("--topic and --partition are needed")
    return values.topic, values.partition


def row_of_listing(one: TransactionListing) -> tuple[object, ...]:
    return one.transactional_id, one.coordinator, one.producer_id, one.state


def row_of_description(one: TransactionDescription, now_ms: int) -> tuple[object, ...]:
    times = (None, None) if one.start_ms is None else (one.start_ms, now_ms - one.start_ms)
    partitions = ",".join(f"{topic}-{number}" for topic, number in one.partitions)
    identity = (one.coordinator, one.transactional_id, one.producer_id, one.producer_epoch)
    return *identity, one.state, one.timeout_ms, *times, partitions


def row_of_hanging(one: OpenTransaction, now_ms: int) -> tuple[object, ...]:
    producer = one.producer
    minutes = (now_ms - producer.last_timestamp) // MINUTE
    identity = (producer.producer_id, producer.producer_epoch, producer.coordinator_epoch)
    return *one.partition, *identity, producer.start_offset, producer.last_timestamp, minutes


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table as Kafka's tool does."""
    for line in table(columns, rows):
        print(line)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return the lines of a table: columns padded to their longest value, each followed by a tab. Control characters in
    the values are escaped."""
    texts = [columns, *([NONE if value is None else printable(str(value)) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return ["".join(f"{text:<{width}}\t" for text, width in zip(row, widths, strict=True)) for row in texts]
