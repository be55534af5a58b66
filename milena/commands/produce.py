"""`milena produce`: each line of standard input is a record."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from milena.client.batches import Produced
from milena.client.cluster import Cluster
from milena.client.producer import Producer
from milena.client.transactional import FENCED, State, TransactionalProducer
from milena.command_line.errors import UsageError
from milena.command_line.options import CommandLine, Option, Positional, Values, key_value
from milena.commands.client import BOOTSTRAP, explain, run
from milena.commands.termination import until_terminated
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.compression import Codec
from milena.runtime.printable import printable

T = TypeVar("T")

CHUNK = 1 << 16
ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}

COMMAND = CommandLine(
    "produce",
    "Write each line of standard input as a record, and wait for all acknowledgements.",
    options=[
        BOOTSTRAP,
        Option("--key-separator", "the separator of key and value in a line", "TEXT", short="-K"),
        Option("--partition", "write to this partition and ignore the keys", "N", convert=int, short="-p"),
        Option("--header", "a header for every record", "NAME=VALUE", many=True, convert=key_value, short="-H"),
        Option("--compression", "none, gzip, snappy, lz4 or zstd", "CODEC", default="none", short="-z"),
        Option("--acks", "all (idempotent), 1 or 0", "ACKS", default="all"),
        Option(
            "--transactional-id",
            "write in a transaction, which is committed at the end of the input; after a minute the cluster aborts it",
            "ID",
        ),
        Option("--commit-every", "commit after every N records too (with --transactional-id)", "N", convert=int),
        Option("--null", "write an empty value as null (a tombstone in compacted topics)"),
    ],
    positionals=[Positional("TOPIC", "the topic to write to")],
    examples=[
        "echo hello | milena produce greetings",
        "echo 'k1:v1' | milena produce -K : -z zstd orders",
        "milena produce --transactional-id import-1 orders < orders.txt",
    ],
)


def main(arguments: Sequence[str]) -> int:
    values = COMMAND.parse(arguments)
    if values.help:
        print(COMMAND.help())
        return 0
    if values.acks not in ACKS:
        raise UsageError(f"--acks {values.acks}: one of all, 1, 0")
    if values.transactional_id == "":
        raise UsageError("--transactional-id is empty")
    if values.transactional_id is not None and ACKS[values.acks] != -1:
        raise UsageError("--transactional-id needs --acks all")
    if values.commit_every is not None and (values.transactional_id is None or values.commit_every < 1):
        raise UsageError("--commit-every needs --transactional-id, and a number of at least 1")
    codecs = {codec.name.lower(): codec for codec in Codec}
    if values.compression not in codecs:
        raise UsageError(f"--compression {values.compression}: one of {', '.join(codecs)}")
    return run(values.bootstrap_server, partial(produce, values, codecs[values.compression]))


async def produce(values: Values, codec: Codec, cluster: Cluster) -> int:
    """Send all lines and wait for their acknowledgements. Returns the exit code. Raises KafkaError."""
    if values.partition is not None:
        await check_partition(cluster, values.topic, values.partition)
    if values.transactional_id is not None:
        producing = TransactionalProducer(cluster, values.transactional_id, codec=codec)
        return await until_terminated(produce_in_transactions(values, producing))
    acks = ACKS[values.acks]
    producer = Producer(cluster, acks=acks, idempotent=acks == -1, codec=codec)
    try:
        await send_lines(values, producer)
    finally:
        await producer.close()
    return 0


async def produce_in_transactions(values: Values, producer: TransactionalProducer) -> None:
    """Send all lines and commit. After an error or a signal the open transaction is aborted. Raises KafkaError."""

    async def commit() -> None:
        await producer.commit()
        producer.begin()

    try:
        await producer.init()
        producer.begin()
        await send_lines(values, producer, commit)
        await producer.commit()
    except asyncio.CancelledError:
        await end_interrupted(producer)
        raise
    except BaseException as error:
        if producer.state in (State.OPEN, State.MUST_ABORT):
            with suppress(KafkaError):  # the error that is raised explains more
                await producer.abort()
        if isinstance(error, KafkaError) and error.code in FENCED:
            raise fenced(error, producer.transactional_id) from error
        raise
    finally:
        await producer.close()


def fenced(error: KafkaError, transactional_id: str) -> KafkaError:
    """Return the error of a fenced producer with the possible causes, which brokers do not tell apart."""
    return KafkaError(
        error.code,
        f"the producer of {printable(transactional_id)} is fenced: its transaction was open for more than a minute, or "
        "another producer uses this transactional id",
    )


async def end_interrupted(producer: TransactionalProducer) -> None:
    """After a signal: finish a commit that has begun, else abort the open transaction; print which."""
    if producer.state is State.COMMITTING:
        end, done = producer.commit, "committed, as it had begun"
        failed = "committed, or times out if the broker did not get the request"
    elif producer.state in (State.OPEN, State.MUST_ABORT, State.ABORTING):
        end, done, failed = producer.abort, "aborted", "not ended, and times out"
    else:
        return
    try:
        await end()
    except KafkaError as error:
        done = f"{failed}: {explain(error)}"
    said = printable(f"interrupted; the transaction of {producer.transactional_id} is {done}")
    print(f"milena: {said}", file=sys.stderr)


async def send_lines(
    values: Values, producer: Producer | TransactionalProducer, commit: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Send all lines and wait for their acknowledgements. ``commit`` is called after every --commit-every lines. Raises
    the KafkaError of the first rejected record."""
    headers = [(name, value.encode()) for name, value in values.header]
    sent: deque[asyncio.Future[Produced]] = deque()
    count = 0
    async for line in lines(sys.stdin.fileno()):
        key, value = split(line, values.key_separator)
        future = await producer.enqueue(
            values.topic,
            None if values.null and not value else value,
            key=key,
            partition=values.partition,
            headers=headers,
        )
        future.add_done_callback(retrieve_error)
        sent.append(future)
        while sent and sent[0].done():
            sent.popleft().result()
        count += 1
        if commit is not None and values.commit_every and count % values.commit_every == 0:
            await commit()
    await asyncio.wait(sent) if sent else None
    for future in sent:
        future.result()


def retrieve_error(future: asyncio.Future[T]) -> None:
    """Retrieve the error of a future, so that asyncio does not warn about it: only the first error is reported."""
    if not future.cancelled():
        future.exception()


async def check_partition(cluster: Cluster, topic: str, partition: int) -> None:
    """Raise KafkaError if an existing topic does not have the partition: the producer would wait until it is
    created."""
    known = (await cluster.metadata([topic])).topics[topic]
    if not known.error and partition not in known.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition} does not exist")


async def lines(fd: int) -> AsyncIterator[bytes]:
    """Yield the lines of a file descriptor as they arrive, also a last line without a newline."""
    begun: list[bytes] = []  # the parts of a line whose end has not been read: joined once, a line may be long
    while data := await read_some(fd):
        first, *others = data.split(b"\n")
        begun.append(first)
        if others:
            *whole, rest = others
            yield b"".join(begun)
            begun = [rest]
            for line in whole:
                yield line
    if last := b"".join(begun):
        yield last


async def read_some(fd: int) -> bytes:
    """Read available bytes. This does not use a thread, because Ctrl-C could not end a thread that waits for a
    terminal."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(fd, readable.set)
    except PermissionError:  # a regular file, which epoll refuses because it is always readable
        return os.read(fd, CHUNK)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(fd)
    return os.read(fd, CHUNK)


def split(line: bytes, separator: str | None) -> tuple[bytes | None, bytes]:
    """Return key and value of a line. A line without the separator has no key."""
    if separator is None:
        return None, line
    key, found, value = line.partition(separator.encode())
    return (key, value) if found else (None, line)
