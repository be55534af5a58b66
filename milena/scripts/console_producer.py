"""``kafka-console-producer``: each line of standard input is a record (Kafka's ConsoleProducer, LineMessageReader)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from milena.client.batches import Produced
from milena.client.cluster import Cluster
from milena.client.producer import Producer
from milena.commands.produce import lines, retrieve_error
from milena.protocol.errors import KafkaError
from milena.protocol.records.compression import Codec
from milena.scripts.common.connection import BOOTSTRAP, CONFIG, SERVER, client_of, properties_of, run, warn
from milena.scripts.common.failures import ScriptError, kind_of, text_of
from milena.scripts.common.options import Found, Option, Parser, key_values, number

ACKS: Final = {"all": -1, "-1": -1, "0": 0, "1": 1}
READERS: Final = ("org.apache.kafka.tools.LineMessageReader", "kafka.tools.ConsoleProducer$LineMessageReader")
KAFKA_EXCEPTION: Final = "org.apache.kafka.common.KafkaException"
PARSER: Final = Parser(
    "This tool helps to read data from standard input and publish it to Kafka.",
    [
        BOOTSTRAP,
        Option("topic", "REQUIRED: The topic to produce to.", "topic"),
        Option("sync", "Send each record by itself and wait for its acknowledgement."),
        Option("compression-codec", "none, gzip, snappy, lz4 or zstd; gzip without a value.", "codec", optional=True),
        Option("request-required-acks", "The acks of the producer: -1, 0, 1 or all.", "acks"),
        Option("reader-property", "A property of the reader, such as parse.key=true or key.separator=:.", "key=value"),
        Option("property", "DEPRECATED: use --reader-property.", "key=value"),
        Option("reader-config", "A properties file for the reader.", "file"),
        Option("command-property", "A property of the producer.", "key=value"),
        Option("producer-property", "DEPRECATED: use --command-property.", "key=value"),
        Option(CONFIG, "A properties file for the producer.", "file"),
        Option("producer.config", "DEPRECATED: use --command-config.", "file"),
        Option("line-reader", "The class that reads lines; only Kafka's LineMessageReader.", "class"),
        *(
            Option(name, "Has no effect.", "number", convert=number)
            for name in (
                "batch-size",
                "message-send-max-retries",
                "retry-backoff-ms",
                "timeout",
                "request-timeout-ms",
                "metadata-expiry-ms",
                "max-block-ms",
                "max-memory-bytes",
                "max-partition-memory-bytes",
                "socket-buffer-size",
            )
        ),
    ],
)


class Parsed(NamedTuple):
    """One line: its key, value and headers."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class LineReader:
    """How a line is split, by the properties of LineMessageReader."""

    parse_key: bool
    parse_headers: bool
    ignore_error: bool
    key_separator: bytes
    headers_delimiter: bytes
    headers_separator: bytes
    headers_key_separator: bytes
    null_marker: bytes | None

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> LineReader:
        """Raises ScriptError for separators that contradict each other."""
        separators = {
            "key.separator": "\t", "headers.delimiter": "\t", "headers.separator": ",", "headers.key.separator": ":",
        } | dict(properties)  # fmt: skip
        for name in ("key.separator", "headers.delimiter", "headers.separator", "headers.key.separator"):
            if not separators[name]:
                raise ScriptError(f"{name} may not be empty", KAFKA_EXCEPTION)
        for first, second in (
            ("headers.delimiter", "headers.separator"),
            ("headers.delimiter", "headers.key.separator"),
            ("headers.separator", "headers.key.separator"),
            *(("null.marker", name) for name in separators if name.endswith(("separator", "delimiter"))),
        ):
            if separators.get(first) == separators[second]:
                raise ScriptError(f"{first} and {second} may not be equal", KAFKA_EXCEPTION)
        marker = properties.get("null.marker")
        return cls(
            is_true(properties, "parse.key"),
            is_true(properties, "parse.headers"),
            is_true(properties, "ignore.error"),
            separators["key.separator"].encode(),
            separators["headers.delimiter"].encode(),
            separators["headers.separator"].encode(),
            separators["headers.key.separator"].encode(),
            None if marker is None else marker.encode(),
        )

    def parse(self, line: bytes, number: int) -> Parsed:
        """Split line ``number``. Raises ScriptError if a separator is missing."""
        rest = line
        headers = key = None
        if self.parse_headers:
            headers, rest = self._cut(line, rest, self.headers_delimiter, "headers delimiter", number)
        if self.parse_key:
            key, rest = self._cut(line, rest, self.key_separator, "key separator", number)
        found = [] if headers is None or headers == self.null_marker else self._headers(headers, number)
        return Parsed(self._or_null(key), self._or_null(rest), found)

    def _cut(self, line: bytes, rest: bytes, mark: bytes, name: str, number: int) -> tuple[bytes | None, bytes]:
        before, found, after = rest.partition(mark)
        if found:
            return before, after
        if self.ignore_error:
            return None, rest
        text = line.decode(errors="replace")
        raise ScriptError(f"No {name} found on line number {number}: '{text}'", KAFKA_EXCEPTION)

    def _headers(self, text: bytes, number: int) -> list[tuple[str, bytes | None]]:
        headers: list[tuple[str, bytes | None]] = []
        for pair in text.split(self.headers_separator):
            key, found, value = pair.partition(self.headers_key_separator)
            if not found and not self.ignore_error:
                shown = pair.decode(errors="replace")
                raise ScriptError(
                    f"No header key separator found in pair '{shown}' on line number {number}", KAFKA_EXCEPTION
                )
            if found and key == self.null_marker:
                marker = key.decode(errors="replace")
                raise ScriptError(
                    f"Header keys should not be equal to the null marker '{marker}' as they can't be null",
                    KAFKA_EXCEPTION,
                )
            headers.append((key.decode(errors="replace"), self._or_null(value) if found else None))
        return headers

    def _or_null(self, text: bytes | None) -> bytes | None:
        return None if text == self.null_marker else text


def is_true(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").strip().lower() == "true"


def main(arguments: Sequence[str]) -> int:
    found = PARSER.parse(arguments)
    found.require("topic", SERVER)
    if found.one("line-reader", READERS[0]) not in READERS:
        raise ScriptError(f"--line-reader {found.one('line-reader')} is not supported: only {READERS[0]} is")
    deprecated(found, "property", "reader-property")
    reader = LineReader.of(merged(found, "reader-config", "property", "reader-property"))
    properties = client_properties(found, "producer.config", "producer-property")
    return run(
        client_of(found, properties, "console-producer"),
        partial(produce, found, reader, properties),
        "metadata",
    )


def merged(found: Found, config: str, *options: str) -> dict[str, str]:
    """Return the properties of a file, overridden by those of options. Raises ScriptError."""
    properties = properties_of(found.one(config)) if found.has(config) else {}
    for option in options:
        properties |= key_values(found.all(option))
    return properties


def client_properties(found: Found, old_config: str, old_option: str) -> dict[str, str]:
    """Return the properties of the client, from the options of Kafka 4.2 or the older ones. Raises ScriptError."""
    deprecated(found, old_config, CONFIG)
    deprecated(found, old_option, "command-property")
    return merged(found, old_config if found.has(old_config) else CONFIG, old_option, "command-property")


def deprecated(found: Found, old: str, new: str) -> None:
    """Print a warning if an old name of an option is used: to standard error, since Kafka's to standard output disturbs
    those who read the records. Raises UsageError if both are."""
    if found.has(old) and found.has(new):
        raise found.wrong(f"Options --{new} and --{old} cannot be specified together.")
    if found.has(old):
        warn(f"Option --{old} is deprecated and will be removed in a future version. Use --{new} instead.")


async def produce(found: Found, reader: LineReader, properties: Mapping[str, str], cluster: Cluster) -> int:
    """Send all lines and wait for them. As in Kafka, rejected records are logged, and change the exit code only with
    --sync."""
    acks = acks_of(found, properties)
    idempotent = acks == -1 and properties.get("enable.idempotence", "true").strip().lower() != "false"
    producer = Producer(cluster, acks=acks, idempotent=idempotent, codec=codec_of(found, properties))
    topic, waiting = found.one("topic"), set[asyncio.Future[Produced]]()
    prompts = sys.stdin.isatty() and sys.stdout.isatty()
    number = 0
    try:
        prompt(prompts)
        async for line in lines(sys.stdin.fileno()):
            number += 1
            parsed = reader.parse(line.removesuffix(b"\r"), number)
            try:
                future = await producer.enqueue(topic, parsed.value, key=parsed.key, headers=parsed.headers)
                if found.has("sync"):
                    await future
            except KafkaError as error:
                if found.has("sync"):
                    raise
                log_failure(topic, parsed, error)
            else:
                waiting.add(future)
                future.add_done_callback(partial(_done, topic, parsed, waiting))
            prompt(prompts)
        await asyncio.wait(waiting) if waiting else None
    finally:
        await producer.close()
    return 0


def _done(topic: str, parsed: Parsed, waiting: set[asyncio.Future[Produced]], future: asyncio.Future[Produced]) -> None:
    waiting.discard(future)
    retrieve_error(future)
    error = None if future.cancelled() else future.exception()
    if isinstance(error, KafkaError):
        log_failure(topic, parsed, error)


def log_failure(topic: str, parsed: Parsed, error: KafkaError) -> None:
    """Print the error of a record as Kafka's ErrorLoggingCallback logs it."""
    key, value = ("null" if data is None else f"{len(data)} bytes" for data in (parsed.key, parsed.value))
    print(
        f"ERROR Error when sending message to topic {topic} with key: {key}, value: {value} with error: "
        f"(org.apache.kafka.clients.producer.internals.ErrorLoggingCallback)\n{kind_of(error.code)}: {text_of(error)}",
        file=sys.stderr,
        flush=True,
    )


def prompt(wanted: bool) -> None:
    if wanted:
        print(">", end="", flush=True)


def acks_of(found: Found, properties: Mapping[str, str]) -> int:
    """Raises ScriptError."""
    text = found.one("request-required-acks") or properties.get("acks", "-1")
    if text not in ACKS:
        raise ScriptError(
            f"Invalid value {text} for configuration acks: String must be one of: all, -1, 0, 1",
            "org.apache.kafka.common.config.ConfigException",
        )
    if properties.get("transactional.id"):
        raise ScriptError(
            f"Cannot add partition {found.one('topic')}-0 to transaction before completing a call to initTransactions",
            "java.lang.IllegalStateException",
        )
    return ACKS[text]


def codec_of(found: Found, properties: Mapping[str, str]) -> Codec:
    """Raises ScriptError."""
    name = properties.get("compression.type", "none")
    if found.has("compression-codec"):
        name = found.one("compression-codec") or "gzip"
    try:
        return Codec[name.strip().upper()]
    except KeyError:
        raise ScriptError(f"Unknown compression name: {name}", "java.lang.IllegalArgumentException") from None
