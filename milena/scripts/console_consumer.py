"""``kafka-console-consumer``: prints records (Kafka's ConsoleConsumer)."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

from milena.client.cluster import Cluster, TopicView
from milena.client.consumer import RESETS, ConsumedRecord, Consumer
from milena.client.group_consumer import GroupConsumer
from milena.commands.consume import COMMITTED, ISOLATION_LEVELS, UNCOMMITTED
from milena.commands.termination import until_terminated
from milena.protocol.errors import ErrorCode, KafkaError, retriable
from milena.runtime.numbers import whole
from milena.scripts.common.connection import BOOTSTRAP, COMMAND_CONFIG, SERVER, client_of, run, warn
from milena.scripts.common.failures import PACKAGE, ScriptError
from milena.scripts.common.options import Found, Option, Parser, integer, number
from milena.scripts.console_producer import client_properties, deprecated, merged
from milena.scripts.formatting import DEFAULT, Formatter, formatter_of
from milena.scripts.topics import pattern_of

POLL: Final = 0.5
"""The longest wait of one poll in seconds."""
NEW_PARTITIONS: Final = 5.0
"""Seconds after which topics are looked up again for new partitions."""
BATCH: Final = 500
TIMEOUT: Final = f"{PACKAGE}.TimeoutException"
CLASS: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PARSER: Final = Parser(
    "This tool helps to read data from Kafka topics and outputs it to standard output.",
    [
        BOOTSTRAP,
        Option("topic", "The topic to consume.", "topic"),
        Option("include", "A regular expression of topics to consume.", "regex"),
        Option(
            "partition", "The partition to consume; from its end, unless --offset is given.", "number", convert=integer
        ),
        Option("offset", "The offset to start at: a number, earliest or latest.", "offset"),
        Option("from-beginning", "Start at the earliest record if there is no committed offset."),
        Option("max-messages", "Exit after this number of records.", "number", convert=integer),
        Option("timeout-ms", "Exit if there is no record for this time.", "milliseconds", convert=number),
        Option("group", "The consumer group.", "group"),
        Option("formatter-property", "A property of the formatter, such as print.key=true.", "key=value"),
        Option("property", "DEPRECATED: use --formatter-property.", "key=value"),
        Option("formatter-config", "A properties file for the formatter.", "file"),
        Option("formatter", "The class that formats records.", "class"),
        Option("key-deserializer", "The class that reads keys.", "class"),
        Option("value-deserializer", "The class that reads values.", "class"),
        Option("isolation-level", "read_uncommitted, or read_committed: without aborted transactions.", "level"),
        Option("skip-message-on-error", "Continue after a record that cannot be formatted."),
        Option("command-property", "A property of the consumer.", "key=value"),
        Option("consumer-property", "DEPRECATED: use --command-property.", "key=value"),
        COMMAND_CONFIG,
        Option("consumer.config", "DEPRECATED: use --command-config.", "file"),
        Option("enable-systest-events", "Print `shutdown_complete` at the end."),
    ],
)


Poll = Callable[[float, int], Awaitable[list[ConsumedRecord]]]
Renew = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Output:
    """What is printed, and how many records were."""

    formatter: Formatter
    skips_errors: bool
    most: int | None
    printed: int = 0

    @property
    def left(self) -> int:
        """How many records are asked for at once; 0 at the end."""
        return BATCH if self.most is None else min(BATCH, self.most - self.printed)

    def show(self, records: Sequence[ConsumedRecord]) -> None:
        """Raises ScriptError for a record that cannot be formatted, BrokenPipeError."""
        for record in records:
            self.printed += 1
            try:
                sys.stdout.buffer.write(self.formatter(record))
            except ScriptError as error:
                if not self.skips_errors:
                    raise
                print(f"ERROR Error processing message, skipping this message: {error.full} ({CLASS})", file=sys.stderr)
        sys.stdout.flush()


Reading = Callable[[Found, Mapping[str, str], Output, Cluster], Coroutine[object, object, None]]


def main(arguments: Sequence[str]) -> int:
    found = PARSER.parse(arguments)
    check(found)
    properties = client_properties(found, "consumer.config", "consumer-property")
    group = group_of(found, properties)
    reset = reset_of(found, properties)
    output = Output(formatter(found), found.has("skip-message-on-error"), most_of(found))
    reading = partial(read_as_member, group) if group else read
    chosen = properties | {"auto.offset.reset": reset, "isolation.level": isolation_of(found, properties)}
    body = partial(consume, found, chosen, output, reading)
    try:
        code = run(client_of(found, properties, "console-consumer"), body)
    except ScriptError as error:
        print(f"ERROR Error processing message, terminating consumer process: {error.full} ({CLASS})", file=sys.stderr)
        code = 0
    except BrokenPipeError:
        print("Unable to write to standard out, closing consumer.", file=sys.stderr)
        raise
    finally:
        print(f"Processed a total of {output.printed} messages", file=sys.stderr)
    if found.has("enable-systest-events"):
        print("shutdown_complete")
    return code


def check(found: Found) -> None:
    """Check the options. Raises UsageError."""
    if found.has("topic") == found.has("include"):
        raise found.wrong("Exactly one of the following arguments is required: [topic], [include]")
    if found.has("partition"):
        if not found.has("topic"):
            raise found.wrong("The topic is required when partition is specified.")
        if found.has("from-beginning") and found.has("offset"):
            raise found.wrong("Options from-beginning and offset cannot be specified together.")
    elif found.has("offset"):
        raise found.wrong("The partition is required when offset is specified.")
    found.require(SERVER)
    offset = found.one("offset", "latest").lower()
    at = 0 if offset in RESETS else whole(offset)
    if at is None or at < 0:
        raise found.wrong(
            f"The provided offset value '{found.one('offset')}' is incorrect. Valid values are 'earliest', 'latest', "
            "or a non-negative long."
        )


def group_of(found: Found, properties: Mapping[str, str]) -> str | None:
    """Return the group, None without one. Raises UsageError."""
    groups = [*found.all("group"), *filter(None, [properties.get("group.id")])]
    if len(set(groups)) > 1:
        detected = ", ".join(f"'{group}'" for group in dict.fromkeys(groups))
        raise found.wrong(
            "The group ids provided in different places (directly using '--group', via '--command-property', or via "
            f"'--command-config') do not match. Detected group ids: {detected}"
        )
    if groups and found.has("partition"):
        raise found.wrong("Options group and partition cannot be specified together.")
    return groups[0] if groups else None


def reset_of(found: Found, properties: Mapping[str, str]) -> str:
    """Return where to start without a committed offset. Raises ScriptError."""
    given = properties.get("auto.offset.reset")
    if given is None:
        return "earliest" if found.has("from-beginning") else "latest"
    if found.has("from-beginning") and given != "earliest":
        raise ScriptError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={given}', please remove one option"
        )
    if given not in RESETS:
        raise ScriptError(f"auto.offset.reset={given} is not supported: only {' and '.join(RESETS)} are")
    return given


def isolation_of(found: Found, properties: Mapping[str, str]) -> str:
    """Return the isolation level. Raises ScriptError."""
    level: str = found.one("isolation-level") or properties.get("isolation.level", UNCOMMITTED)
    if level not in ISOLATION_LEVELS:
        raise ScriptError(
            f"Invalid value {level} for configuration isolation.level: String must be one of: "
            f"{', '.join(reversed(ISOLATION_LEVELS))}",
            "org.apache.kafka.common.config.ConfigException",
        )
    return level


def most_of(found: Found) -> int | None:
    most = found.one("max-messages", -1)
    return None if most == -1 else max(most, 0)


def formatter(found: Found) -> Formatter:
    """Return the formatter. Raises ScriptError."""
    deprecated(found, "property", "formatter-property")
    properties = {
        f"{name}.deserializer": found.one(f"{name}-deserializer")
        for name in ("key", "value")
        if found.has(f"{name}-deserializer")
    }
    return formatter_of(
        found.one("formatter", DEFAULT[0]),
        properties | merged(found, "formatter-config", "property", "formatter-property"),
    )


async def consume(
    found: Found, properties: Mapping[str, str], output: Output, reading: Reading, cluster: Cluster
) -> int:
    """Read until the limit, the timeout or SIGTERM. Return the exit code: 0 also after the timeout, as in Kafka."""
    return await until_terminated(reading(found, properties, output, cluster))


async def read(found: Found, properties: Mapping[str, str], output: Output, cluster: Cluster) -> None:
    """Read partitions without a group: all of the topics, or the one of --partition. Raises KafkaError, ScriptError."""
    start = found.one("offset", properties["auto.offset.reset"]).lower()
    reset = start if start in RESETS else properties["auto.offset.reset"]
    committed = properties["isolation.level"] == COMMITTED
    consumer = Consumer(cluster, reset=reset, rack=properties.get("client.rack", ""), committed=committed)

    async def assign() -> None:
        topics = await topics_of(found, cluster)
        consumer.assign({(topic, number): None for topic in topics for number in topics[topic].partitions})

    try:
        if found.has("partition"):
            offset = None if start in RESETS else int(start)
            consumer.assign({(found.one("topic"), found.one("partition")): offset})
            await print_all(found, output, consumer.poll, cluster)
        else:
            await assign()
            await print_all(found, output, consumer.poll, cluster, assign)
    finally:
        await consumer.close()


async def read_as_member(
    group: str, found: Found, properties: Mapping[str, str], output: Output, cluster: Cluster
) -> None:
    """Read as a member of the group, and commit what was printed. Raises KafkaError, ScriptError."""
    session = whole(properties.get("session.timeout.ms", "45000"))
    consumer = GroupConsumer(
        cluster,
        group,
        list(await topics_of(found, cluster)),
        reset=properties["auto.offset.reset"],
        session_timeout_ms=45_000 if session is None else session,
        instance_id=properties.get("group.instance.id"),
        auto_commit=properties.get("enable.auto.commit", "true").strip().lower() != "false",
        rack=properties.get("client.rack", ""),
        committed=properties["isolation.level"] == COMMITTED,
    )
    try:
        await print_all(found, output, consumer.poll, cluster)
    finally:
        await consumer.close()


async def topics_of(found: Found, cluster: Cluster) -> dict[str, TopicView]:
    """Return the topics to read. Waits for the topic of --topic, which the broker may create. Raises ScriptError after
    the time of --timeout-ms."""
    if found.has("include"):
        pattern = pattern_of(found.one("include"))
        return {name: topic for name, topic in (await cluster.metadata()).topics.items() if pattern.fullmatch(name)}
    name, clock = found.one("topic"), cluster.runtime.clock
    deadline = clock.monotonic() + timeout_of(found)
    for attempt in range(1_000_000):
        topic = (await cluster.metadata([name], allow_auto_create=True)).topics[name]
        if topic.partitions:
            return {name: topic}
        error = ErrorCode(topic.error)
        if error and not retriable(error):
            raise KafkaError(error, f"Invalid topics: [{name}]" if error is ErrorCode.INVALID_TOPIC_EXCEPTION else None)
        if attempt == 0:
            warn(f"The metadata response from the cluster reported a recoverable issue: {{{name}={error.name}}}")
        if clock.monotonic() > deadline:
            break
        await cluster.pause(attempt)
    raise ScriptError("", TIMEOUT)


async def print_all(found: Found, output: Output, poll: Poll, cluster: Cluster, renew: Renew | None = None) -> None:
    """Print records until the limit. ``renew`` is called from time to time, to assign new partitions. Raises
    ScriptError if there was no record for the time of --timeout-ms."""
    clock, timeout = cluster.runtime.clock, timeout_of(found)
    last = renewed = clock.monotonic()
    while output.left:
        records = await poll(min(POLL, timeout), output.left)
        now = clock.monotonic()
        if records:
            output.show(records)
            last = now
        elif now - last > timeout:
            raise ScriptError("", TIMEOUT)
        if renew is not None and now - renewed > NEW_PARTITIONS:
            await renew()
            renewed = now


def timeout_of(found: Found) -> float:
    """Return --timeout-ms in seconds, infinite by default."""
    timeout: int = found.one("timeout-ms", -1)
    return timeout / 1000 if timeout >= 0 else inf
