"""`milena consume`: print records."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from milena.command_line.errors import UsageError, UserError
from milena.command_line.options import CommandLine, Option, Positional, Values
from milena.commands.client import BOOTSTRAP, explain, run
from milena.node.client import admin
from milena.node.client.cluster import Cluster
from milena.node.client.consumer import ConsumedRecord, Consumer
from milena.node.client.group_consumer import GroupConsumer
from milena.node.client.offsets import EARLIEST, LATEST, find_offset
from milena.node.links.outgoing import ChannelError
from milena.protocol.errors import ErrorCode, KafkaError

COMMAND = CommandLine(
    "consume",
    "Print the values of records, one a line, as they come. It starts at the end of the topic, or with --group (-G)\n"
    "at the offsets that the group has committed; a partition without one starts at its end. --from-beginning starts\n"
    "at the earliest record instead, with a group only where nothing is committed.",
    options=[
        BOOTSTRAP,
        Option("--from-beginning", "start at the earliest record; with --group where it has committed nothing"),
        Option(
            "--group",
            "read as a member of this group, from its committed offsets on, and commit what was printed",
            "GROUP",
            short="-G",
        ),
        Option(
            "--rack", "where this consumer is: nearer replicas serve it, if the brokers select them", "RACK", default=""
        ),
        Option("--partition", "read this partition alone", "N", convert=int, short="-p"),
        Option("--offset", "start here (with --partition)", "N", convert=int, short="-o"),
        Option("--max", "stop after so many records", "N", convert=int, short="-c"),
        Option("--exit", "stop at the present end of the topic", short="-e"),
        Option(
            "--json",
            "everything about a record, as one JSON object a line; bytes that are not UTF-8 in base64",
            short="-J",
        ),
        Option("--key-separator", "print keys too, with this between key and value", "TEXT", short="-K"),
    ],
    positionals=[Positional("TOPIC", "the topic to read")],
    examples=["milena consume orders --from-beginning --exit", "milena consume orders --group billing --json"],
)
BASE64 = "base64"
UNEXPLAINED = (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.CORRUPT_MESSAGE)
"""What a partition answers where its records, here or in the tier, are missing or damaged."""
WAIT = 1.0
"""Seconds for one poll; Ctrl-C is heard at any time."""


def main(arguments: Sequence[str]) -> int:
    values = COMMAND.parse(arguments)
    if values.help:
        print(COMMAND.help())
        return 0
    if values.group and (values.partition is not None or values.exit):
        raise UsageError("--group goes with neither --partition nor --exit: the group decides what is read")
    if values.offset is not None and values.partition is None:
        raise UsageError("--offset needs --partition")
    for option in ("partition", "offset", "max"):
        if (getattr(values, option) or 0) < 0:
            raise UsageError(f"--{option} {getattr(values, option)}: not a number from 0 on")
    return run(values.bootstrap_server, partial(consume_group if values.group else consume, values))


async def consume(values: Values, cluster: Cluster) -> int:
    """Print from all partitions, or from one."""
    topic = await cluster.topic(values.topic, fresh=True)
    wanted = list(topic.partitions) if values.partition is None else [values.partition]
    ends = {}
    if values.exit:
        ends = {number: (await find_offset(cluster, values.topic, number, LATEST)).offset for number in wanted}
    if values.offset is not None:
        await check_offset(cluster, values.topic, values.partition, values.offset)
    consumer = Consumer(cluster, reset="earliest" if values.from_beginning else "latest", rack=values.rack)
    consumer.assign({(values.topic, number): values.offset for number in wanted})
    printed = 0
    try:
        while values.max is None or printed < values.max:
            room = 500 if values.max is None else min(500, values.max - printed)
            async with explained(cluster, values.topic):
                records = await consumer.poll(WAIT, room)
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
    """What a broker will not say to a client stands elsewhere: raise UserError with where."""
    try:
        yield
    except KafkaError as error:
        if error.code not in UNEXPLAINED:
            raise
        tiered = f"; `milena tier verify {topic}` looks into the tier" if await is_tiered(cluster, topic) else ""
        raise UserError(f"{explain(error)}: the brokers' logs say why (`milena logs`){tiered}") from None


async def is_tiered(cluster: Cluster, topic: str) -> bool:
    """As far as the brokers tell."""
    try:
        entries = await admin.describe_configs(cluster, admin.TOPIC_RESOURCE, topic)
    except (KafkaError, ChannelError):
        return False
    return any(entry.name == "remote.storage.enable" and entry.value == "true" for entry in entries)


async def check_offset(cluster: Cluster, topic: str, partition: int, offset: int) -> None:
    """A consumer without a place to start goes elsewhere without a word; a person meant that one. Raises UserError."""
    start, end = [(await find_offset(cluster, topic, partition, where)).offset for where in (EARLIEST, LATEST)]
    if not start <= offset <= end:
        raise UserError(f"--offset {offset}: {topic}-{partition} begins at {start} and ends before {end}")


def at_end(consumer: Consumer, topic: str, ends: Mapping[int, int]) -> bool:
    """Whether every partition has been read up to where it ended when we began."""
    positions = {number: consumer.position(topic, number) for number in ends}
    return all(position is not None and position >= ends[number] for number, position in positions.items())


async def consume_group(values: Values, cluster: Cluster) -> int:
    """Print as a member of a group. Committed is what was printed."""
    await cluster.topic(values.topic, fresh=True)
    reset = "earliest" if values.from_beginning else "latest"
    consumer = GroupConsumer(cluster, values.group, [values.topic], reset=reset, rack=values.rack)
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
    """One record, as the options want it."""
    if values.json:
        print(json.dumps(record_of(record), ensure_ascii=False))
        return
    output = sys.stdout.buffer
    if values.key_separator is not None:
        output.write((record.key or b"") + values.key_separator.encode())
    output.write((record.value or b"") + b"\n")


def record_of(record: ConsumedRecord) -> dict[str, object]:
    """A record for JSON. Bytes that are not UTF-8 are in base64, and beside them stands that they are:
    ``"value_encoding": "base64"``, and a third item of a header."""
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
    """Name and value, and the encoding if the value is not UTF-8."""
    value, encoding = text(data)
    return [name, value] if encoding is None else [name, value, encoding]


def text(data: bytes | None) -> tuple[str | None, str | None]:
    """Bytes as JSON can say them, and their encoding if that is not UTF-8."""
    if data is None:
        return None, None
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return b64encode(data).decode(), BASE64
