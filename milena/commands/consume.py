"""`milena consume`: print records."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.consumer import ConsumedRecord, Consumer
from milena.client.group_consumer import GroupConsumer
from milena.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, find_offset
from milena.command_line.errors import UsageError, UserError
from milena.command_line.options import CommandLine, Option, Positional, Values
from milena.commands.client import BOOTSTRAP, explain, run
from milena.node.links.outgoing import ChannelError
from milena.protocol.errors import ErrorCode, KafkaError

UNCOMMITTED, COMMITTED = ISOLATION_LEVELS = ("read_uncommitted", "read_committed")

COMMAND = CommandLine(
    "consume",
    "Print the values of records, one per line, as they arrive. Starts at the end of the topic, or "
    "with --group (-G) at\n"
    "the group's committed offsets; a partition without one starts at its end. --from-beginning starts at the\n"
    "earliest record instead, with a group only in partitions without a committed offset.",
    options=[
        BOOTSTRAP,
        Option("--from-beginning", "start at the earliest record; with --group only without a committed offset"),
        Option(
            "--group",
            "read as a member of this group from its committed offsets, and commit printed records",
            "GROUP",
            short="-G",
        ),
        Option("--rack", "this consumer's rack: brokers may select a replica there to serve it", "RACK", default=""),
        Option(
            "--isolation-level",
            "read_uncommitted, or read_committed: without records of open and aborted transactions",
            "LEVEL",
            default=UNCOMMITTED,
        ),
        Option("--partition", "read this partition alone", "N", convert=int, short="-p"),
        Option("--offset", "start here (with --partition)", "N", convert=int, short="-o"),
        Option("--max", "stop after N records", "N", convert=int, short="-c"),
        Option("--exit", "stop at the present end of the topic", short="-e"),
        Option(
            "--json",
            "print each record as one JSON object per line; bytes that are not UTF-8 in base64",
            short="-J",
        ),
        Option("--key-separator", "print keys too, separated from values by TEXT", "TEXT", short="-K"),
    ],
    positionals=[Positional("TOPIC", "the topic to read")],
    examples=["milena consume orders --from-beginning --exit", "milena consume orders --group billing --json"],
)
BASE64 = "base64"
UNEXPLAINED = (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.CORRUPT_MESSAGE)
"""The error codes that a broker returns for missing or damaged records, on disk or in the tier; only its log has the
details."""
WAIT = 1.0
"""The timeout of one poll in seconds; Ctrl-C is handled at any time."""


def main(arguments: Sequence[str]) -> int:
    values = COMMAND.parse(arguments)
    if values.help:
        print(COMMAND.help())
        return 0
    if values.isolation_level not in ISOLATION_LEVELS:
        raise UsageError(f"--isolation-level {values.isolation_level}: one of {', '.join(ISOLATION_LEVELS)}")
    if values.group and (values.partition is not None or values.exit):
        raise UsageError("--group cannot be combined with --partition or --exit")
    if values.offset is not None and values.partition is None:
        raise UsageError("--offset needs --partition")
    for option in ("partition", "offset", "max"):
        if (getattr(values, option) or 0) < 0:
            raise UsageError(f"--{option} {getattr(values, option)}: not a number of at least 0")
    return run(values.bootstrap_server, partial(consume_group if values.group else consume, values))


async def consume(values: Values, cluster: Cluster) -> int:
    """Print the records of all partitions, or of one."""
    topic = await cluster.topic(values.topic, fresh=True)
    wanted = list(topic.partitions) if values.partition is None else [values.partition]
    committed = values.isolation_level == COMMITTED
    isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
    ends = {}
    if values.exit:
        ends = {
            number: (await find_offset(cluster, values.topic, number, LATEST, isolation=isolation)).offset
            for number in wanted
        }
    if values.offset is not None:
        await check_offset(cluster, values.topic, values.partition, values.offset)
    reset = "earliest" if values.from_beginning else "latest"
    consumer = Consumer(cluster, reset=reset, rack=values.rack, committed=committed)
    consumer.assign({(values.topic, number): values.offset for number in wanted})
    printed = 0
    try:
        while values.max is None or printed < values.max:
            limit = 500 if values.max is None else min(500, values.max - printed)
            async with explained(cluster, values.topic):
                records = await consumer.poll(WAIT, limit)
            for record in records:
                if record.offset < ends.get(record.partition, record.offset + 1):
                    show(record, values)
                    printed += 1
            sys.stdout.flush()
            if values.exit and at_end(consumer, values.topic, ends):
                break
    finally:
        await consumer.close()
    return 0


@asynccontextmanager
async def explained(cluster: Cluster, topic: str) -> AsyncIterator[None]:
    """Convert errors without details (UNEXPLAINED) into a UserError that names the brokers' logs."""
    try:
        yield
    except KafkaError as error:
        if error.code not in UNEXPLAINED:
            raise
        tiered = f"; `milena tier verify {topic}` checks the tier" if await is_tiered(cluster, topic) else ""
        raise UserError(f"{explain(error)}: the brokers' logs say why (`milena logs`){tiered}") from None


async def is_tiered(cluster: Cluster, topic: str) -> bool:
    """Return whether the topic has remote storage, as far as the brokers report it."""
    try:
        entries = await admin.describe_configs(cluster, admin.TOPIC_RESOURCE, topic)
    except (KafkaError, ChannelError):
        return False
    return any(entry.name == "remote.storage.enable" and entry.value == "true" for entry in entries)


async def check_offset(cluster: Cluster, topic: str, partition: int, offset: int) -> None:
    """Check that the partition has the offset, because the consumer would silently start at another one. Raises
    UserError."""
    start, end = [(await find_offset(cluster, topic, partition, where)).offset for where in (EARLIEST, LATEST)]
    if not start <= offset <= end:
        raise UserError(f"--offset {offset}: {topic}-{partition} begins at {start} and ends before {end}")


def at_end(consumer: Consumer, topic: str, ends: Mapping[int, int]) -> bool:
    """Return whether every partition has been read up to its end at the start of the command."""
    positions = {number: consumer.position(topic, number) for number in ends}
    return all(position is not None and position >= ends[number] for number, position in positions.items())


async def consume_group(values: Values, cluster: Cluster) -> int:
    """Print records as a member of a group, and commit their offsets after printing them."""
    await cluster.topic(values.topic, fresh=True)
    reset = "earliest" if values.from_beginning else "latest"
    committed = values.isolation_level == COMMITTED
    consumer = GroupConsumer(cluster, values.group, [values.topic], reset=reset, rack=values.rack, committed=committed)
    printed = 0
    try:
        while values.max is None or printed < values.max:
            async with explained(cluster, values.topic):
                records = await consumer.poll(WAIT, 500 if values.max is None else min(500, values.max - printed))
            for record in records:
                show(record, values)
            printed += len(records)
            sys.stdout.flush()
            if records:
                await consumer.commit()
    finally:
        await consumer.close()
    return 0


def show(record: ConsumedRecord, values: Values) -> None:
    """Print one record in the format that the options select."""
    if values.json:
        print(json.dumps(record_of(record), ensure_ascii=False))
        return
    output = sys.stdout.buffer
    if values.key_separator is not None:
        output.write((record.key or b"") + values.key_separator.encode())
    output.write((record.value or b"") + b"\n")


def record_of(record: ConsumedRecord) -> dict[str, object]:
    """Return a record for JSON. Bytes that are not UTF-8 are in base64, which ``"key_encoding": "base64"``,
    ``"value_encoding": "base64"`` or a third item of a header show."""
    shown: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    for name, data in (("key", record.key), ("value", record.value)):
        shown[name], encoding = text(data)
        shown |= {} if encoding is None else {f"{name}_encoding": encoding}
    shown["headers"] = [header_of(name, value) for name, value in record.headers]
    return shown


def header_of(name: str, data: bytes | None) -> list[str | None]:
    """Return name and value, and the encoding if the value is not UTF-8."""
    value, encoding = text(data)
    return [name, value] if encoding is None else [name, value, encoding]


def text(data: bytes | None) -> tuple[str | None, str | None]:
    """Return bytes as text, and their encoding if that is not UTF-8."""
    if data is None:
        return None, None
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return b64encode(data).decode(), BASE64
