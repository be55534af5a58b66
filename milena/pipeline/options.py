"""The options of the source and the sink, with the names and meanings that Spark's Kafka source gives them."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from milena.pipeline.client_options import CONSUMERS, OF_SINK, OF_SOURCE, ignored_options
from milena.pipeline.errors import PipelineError
from milena.protocol.types import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
"""Offsets in JSON that stand for the first and the last offset, as in Spark."""
IDS: Final = "topic ids"
"""The key in JSON for the ids of the topics. No topic can have this name."""
PARTITION_BYTES: Final = 128 << 20
STRATEGY: Final = "startingOffsetsByTimestampStrategy"
LONGEST_DELAY: Final = 15 * 60.0
"""The default of option ``maxTriggerDelay`` in seconds."""
TRANSACTION_TIMEOUT: Final = 15 * 60.0
"""The default of option ``transactionTimeout`` in seconds: the default of the brokers' transaction.max.timeout.ms."""

LARGEST: Final = (1 << 63) - 1
LAST_PARTITION: Final = (1 << 31) - 1
"""The maximum of offsets and times, and of partition numbers."""

_CHOICES: Final = ("assign", "subscribe", "subscribePattern")
_OF_SINK: Final = (
    "kafka.bootstrap.servers",
    "topic",
    "checkpointLocation",
    "deliveryGuarantee",
    "failOnChangedBatch",
    "transactionTimeout",
)
_KNOWN: Final = (
    *_CHOICES,
    "tier",
    "storageOptions",
    "metadata",
    "kafka.bootstrap.servers",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    STRATEGY,
    "includeHeaders",
    "isolation.level",
    "kafka.isolation.level",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxPartitionBytes",
    "columns",
    "pushFilters",
    "path",
)
_OF_TRIGGERS: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
"""Options that have no effect in a batch, as in Spark's Kafka source."""
_OF_SPARKS_SOURCE: Final = (
    *_CHOICES,
    *_OF_TRIGGERS,
    *CONSUMERS,
    "startingOffsets",
    "endingOffsets",
    "includeHeaders",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
)
"""Options of Spark's Kafka source that its sink ignores."""
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True, slots=True)
class Chosen:
    """The topics or partitions that are read: one of the three fields is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Bound:
    """The start or the end of what is read: EARLIEST, LATEST, an offset or a timestamp (ms) for each partition, or one
    timestamp for all."""

    place: int = 0
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    """The ids (as text) of the topics in ``offsets``, as far as they are known."""
    timestamp: int | None = None
    timestamps: Mapping[TopicPartition, int] = field(default_factory=dict)
    latest_if_none: bool = False
    """Whether reading starts at the log end if no record has the time or a later one; otherwise that is an error."""
    option: str = ""
    """The name of the option, for messages."""

    def time_of(self, place: TopicPartition) -> int | None:
        """Return the timestamp (ms) for a partition; None if the bound is not a timestamp."""
        return self.timestamps.get(place, self.timestamp)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of the source."""

    chosen: Chosen
    starting: Bound
    ending: Bound
    tier: str = ""
    storage_options: str = ""
    metadata: tuple[str, ...] = ()
    bootstrap: tuple[tuple[str, int], ...] = ()
    headers: bool = False
    committed: bool = False
    fail_on_data_loss: bool = True
    per_trigger: int | None = None
    least_per_trigger: int | None = None
    longest_delay: float = LONGEST_DELAY
    """In seconds."""
    least_tasks: int | None = None
    records_per_task: int | None = None
    partition_bytes: int = PARTITION_BYTES
    columns: tuple[str, ...] = ()
    push_filters: bool = False
    ignored: tuple[str, ...] = ()
    """Options that were given and have no effect."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of the sink. ``topic``: the topic to write to; empty if the column ``topic`` names it. ``ignored``:
    options that were given and have no effect. ``transaction_timeout`` is in seconds."""

    bootstrap: tuple[tuple[str, int], ...]
    topic: str = ""
    ignored: tuple[str, ...] = ()
    exactly_once: bool = False
    fail_on_changed_batch: bool = True
    transaction_timeout: float = TRANSACTION_TIMEOUT


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Parse the options of the sink. Raises PipelineError."""
    options = _Given(given)
    ignored = options.check_names(_OF_SINK, OF_SINK, _OF_SPARKS_SOURCE)
    bootstrap = options.text("kafka.bootstrap.servers")
    if not bootstrap:
        raise PipelineError("option kafka.bootstrap.servers must be specified: the brokers to write to")
    guarantee = options.text("deliveryGuarantee").lower()
    if guarantee not in {"", "at-least-once", "exactly-once"}:
        raise PipelineError(f"option deliveryGuarantee={guarantee} is neither at-least-once nor exactly-once")
    once = guarantee == "exactly-once"
    if not once:
        ignored += tuple(name for name in ("failOnChangedBatch", "transactionTimeout") if options.text(name))
    return SinkOptions(
        addresses(bootstrap),
        options.text("topic"),
        ignored,
        exactly_once=once,
        fail_on_changed_batch=options.flag("failOnChangedBatch", default=True),
        transaction_timeout=options.seconds("transactionTimeout", TRANSACTION_TIMEOUT),
    )


def source_options(given: Mapping[str, str], *, streaming: bool | None = False) -> SourceOptions:
    """Parse the options of the source. ``streaming``: whether the query is a stream; None if that is not known. Raises
    PipelineError for unknown, missing and contradicting options."""
    options = _Given(given)
    ignored = options.check_names(_KNOWN, OF_SOURCE, CONSUMERS)
    tier = options.one_of("tier", "path")
    bootstrap = options.text("kafka.bootstrap.servers")
    if not tier and not bootstrap:
        raise PipelineError("specify option tier, kafka.bootstrap.servers or both, to say where the records are")
    if not tier and options.text("metadata"):
        raise PipelineError("option metadata names the metadata of a tier, so it requires option tier")
    if options.text("storageOptions") and "://" not in tier:
        raise PipelineError(f"option storageOptions is for a tier with a URL, but the tier is {tier or 'not named'}")
    first, last = _bounds(options, streaming)
    least, most = options.count("minOffsetsPerTrigger"), options.count("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise PipelineError(f"option minOffsetsPerTrigger={least} is higher than option maxOffsetsPerTrigger={most}")
    if streaming is False:
        ignored += tuple(name for name in _OF_TRIGGERS if options.text(name))
    return SourceOptions(
        chosen=options.chosen(),
        starting=first,
        ending=last,
        tier=_absolute(tier) if tier else "",
        storage_options=options.text("storageOptions"),
        metadata=tuple(_absolute(one.strip()) for one in options.text("metadata").split(",") if one.strip()),
        bootstrap=addresses(bootstrap),
        headers=options.flag("includeHeaders", default=False),
        committed=options.committed(),
        fail_on_data_loss=options.flag("failOnDataLoss", default=True),
        per_trigger=most,
        least_per_trigger=least,
        longest_delay=options.seconds("maxTriggerDelay", LONGEST_DELAY),
        least_tasks=options.count("minPartitions"),
        records_per_task=options.count("maxRecordsPerPartition"),
        partition_bytes=options.size("maxPartitionBytes", PARTITION_BYTES),
        columns=options.columns(),
        push_filters=options.flag("pushFilters", default=False),
        ignored=ignored,
    )


def _bounds(options: _Given, streaming: bool | None) -> tuple[Bound, Bound]:
    """Return the start and the end. Raises PipelineError, with the texts of Spark's Kafka source."""
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp") if streaming else ():
        if options.text(name):
            raise PipelineError(f"option {name}: ending offset not valid in streaming queries")
    first = options.bound("starting", LATEST if streaming else EARLIEST)
    last = options.bound("ending", LATEST)
    if streaming is False and first.place == LATEST:
        raise PipelineError("option startingOffsets=latest: starting offset can't be latest for batch queries")
    if last.place == EARLIEST:
        raise PipelineError("option endingOffsets=earliest: ending offset can't be earliest for batch queries")
    _refuse(last, EARLIEST, "earliest (-2)")
    if streaming is False:
        _refuse(first, LATEST, "latest (-1)")
    for place, begin in first.timestamps.items():
        if begin > last.timestamps.get(place, begin):
            raise PipelineError(
                f"options {first.option} and {last.option} contradict each other: {place[0]}-{place[1]} would be read "
                f"from {begin} to {last.timestamps[place]}"
            )
    return first, last


def _absolute(place: str) -> str:
    """Return an absolute path: tasks on other machines have another working directory than the driver."""
    # Spark writes the location of a table as file:/folder.
    return place if "://" in place else os.path.abspath(place.removeprefix("file:"))


def _refuse(bound: Bound, place: int, name: str) -> None:
    for (topic, number), offset in bound.offsets.items():
        if offset == place:
            raise PipelineError(f"option {bound.option} for {topic}-{number} can't be {name} for batch queries")


class _Given:
    """The given options. Names are case-insensitive, and None means that an option was not given, as in Spark."""

    def __init__(self, given: Mapping[str, str]) -> None:
        there = {name: value for name, value in given.items() if value is not None}
        self._given = {name.lower(): str(value).strip() for name, value in there.items()}
        if len(self._given) < len(there):
            one, two = next((a, b) for a in there for b in there if a < b and a.lower() == b.lower())
            raise PipelineError(f"options {one} and {two} are one option, given twice")

    def text(self, name: str) -> str:
        return self._given.get(name.lower(), "")

    def columns(self) -> tuple[str, ...]:
        names = tuple(filter(None, (one.strip() for one in self.text("columns").split(","))))
        twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
        if twice is not None:
            raise PipelineError(f"option columns names {twice} twice")
        return names

    def check_names(
        self, names: Sequence[str], refused: Mapping[str, str], without_effect: Sequence[str]
    ) -> tuple[str, ...]:
        """Return the given options that have no effect. Raises PipelineError for unknown ones."""
        known = {name.lower(): name for name in names}
        ignored = ignored_options(self._given, known, refused, without_effect)
        for name in sorted(self._given.keys() - known.keys() - {one.lower() for one in ignored}):
            alike = difflib.get_close_matches(name, known, 1)
            raise PipelineError(f"option {name} is unknown{f'; is {known[alike[0]]} meant?' if alike else ''}")
        return tuple(ignored)

    def one_of(self, name: str, other: str) -> str:
        one, two = self.text(name), self.text(other)
        if one and two and one != two:
            raise PipelineError(f"options {name}={one} and {other}={two} contradict each other")
        return one or two

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.text(name).lower()
        if text not in {"", "true", "false"}:
            raise PipelineError(f"option {name}={text} is neither true nor false")
        return text == "true" if text else default

    def count(self, name: str) -> int | None:
        text = self.text(name)
        if text and not (_whole(text) and 0 < int(text) <= LARGEST):
            raise PipelineError(f"option {name}={text} is not a whole number above 0")
        return int(text) if text else None

    def seconds(self, name: str, default: float) -> float:
        """Return a duration in seconds. Without a unit it is in milliseconds, as in Spark."""
        text = self.text(name).lower()
        found = re.fullmatch(r"(\d{1,18}) *([a-z]*)", text, re.ASCII)
        if text and (found is None or found[2] not in {"", *_SECONDS}):
            raise PipelineError(f"option {name}={text} is not a duration: milliseconds, or as 30s, 15m, 1h")
        return default if found is None else int(found[1]) * _SECONDS[found[2] or "ms"]

    def size(self, name: str, default: int) -> int:
        text = self.text(name).lower()
        if not text:
            return default
        found = re.fullmatch(r"(\d{1,19})([kmg]?)b?", text, re.ASCII)
        size = int(found[1]) * _UNITS[found[2]] if found is not None else 0
        if not 0 < size <= LARGEST:
            raise PipelineError(f"option {name}={text} is not a size above 0: bytes, or as 64k, 128m, 1g")
        return size

    def committed(self) -> bool:
        level = self.one_of("isolation.level", "kafka.isolation.level").lower()
        if level not in {"", "read_committed", "read_uncommitted"}:
            raise PipelineError(f"option isolation.level={level} is neither read_committed nor read_uncommitted")
        return level == "read_committed"

    def chosen(self) -> Chosen:
        named = [name for name in _CHOICES if self.text(name)]
        if not named:
            raise PipelineError(f"one of the following options must be specified: {', '.join(_CHOICES)}")
        if len(named) > 1:
            every = ", ".join(_CHOICES)
            raise PipelineError(f"only one of the following options can be specified: {every}; {_both(named)} are")
        text = self.text(named[0])
        if named[0] == "subscribe":
            topics = tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))
            if not topics:
                raise PipelineError(f"no topics to subscribe to: option subscribe={text}")
            return Chosen(topics=topics)
        if named[0] == "subscribePattern":
            try:
                re.compile(text)
            except (re.error, OverflowError, RecursionError) as error:
                raise PipelineError(f"option subscribePattern={text} is not a pattern: {error}") from None
            return Chosen(pattern=text)
        partitions = tuple(_assigned(text))
        if not partitions:
            raise PipelineError(f"no topicpartitions to assign: option assign={text}")
        return Chosen(partitions=partitions)

    def bound(self, side: str, default: int) -> Bound:
        """Return where reading starts or ends (``side``). As in Spark, the option with a timestamp takes precedence
        over the one with offsets. Raises PipelineError."""
        strategy = self.text(STRATEGY).lower()
        if strategy not in {"", "error", "latest"}:
            raise PipelineError(f"option {STRATEGY}={strategy} is neither error nor latest")
        latest = side == "starting" and strategy == "latest"
        option = f"{side}Timestamp"
        if text := self.text(option):
            if not (_whole(text) and int(text) <= LARGEST):
                raise PipelineError(f"option {option}={text} is not a time in milliseconds since 1970")
            return Bound(timestamp=int(text), latest_if_none=latest, option=option)
        option = f"{side}OffsetsByTimestamp"
        if text := self.text(option):
            return Bound(timestamps=timestamps_of(option, text), latest_if_none=latest, option=option)
        option = f"{side}Offsets"
        text = self.text(option)
        places = {"": default, "earliest": EARLIEST, "latest": LATEST}
        if text.lower() in places:
            return Bound(place=places[text.lower()], option=option)
        offsets, ids = offsets_of(option, text)
        return Bound(offsets=offsets, ids=ids, option=option)


def _both(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _assigned(text: str) -> dict[TopicPartition, None]:
    found: dict[TopicPartition, None] = {}
    expected = 'option assign: expected e.g. {"topicA":[0,1],"topicB":[0,1]}'
    for topic, numbers in _json(expected, text).items():
        if not isinstance(numbers, list) or not all(type(one) is int for one in numbers):
            raise PipelineError(f"{expected}, got {text}")
        for number in numbers:
            if not 0 <= number <= LAST_PARTITION:
                raise PipelineError(f"option assign: {number} is no partition of {topic}: they are numbered from 0")
            found[topic, number] = None
    return found


def offsets_of(option: str, text: str) -> tuple[dict[TopicPartition, int], dict[str, str]]:
    """``{"topic": {"0": 23, "1": -2}}``, optionally with the ids of topics, as a checkpoint has them. Returns the
    offsets and the ids. Raises PipelineError."""
    expected = f'option {option}: expected earliest, latest or e.g. {{"topicA":{{"0":23,"1":-1}},"topicB":{{"0":-2}}}}'
    plain = _json(expected, text)
    ids = plain.pop(IDS, {})
    if not isinstance(ids, dict) or not all(isinstance(one, str) for one in ids.values()):
        raise PipelineError(f"{expected}, got {text}")
    wrong = "is not an offset: {}; use -1 for latest, -2 for earliest"
    return _by_partition(option, expected, text, plain, EARLIEST, wrong), ids


def timestamps_of(option: str, text: str) -> dict[TopicPartition, int]:
    """``{"topic": {"0": 1700000000000}}``: a timestamp (ms) for each partition. Raises PipelineError."""
    expected = f'option {option}: expected e.g. {{"topicA":{{"0":1700000000000,"1":1700000000000}}}}'
    wrong = "is not a time in milliseconds since 1970: {}"
    return _by_partition(option, expected, text, _json(expected, text), 0, wrong)


def _by_partition(
    option: str, expected: str, text: str, plain: Mapping[str, Any], least: int, wrong: str
) -> dict[TopicPartition, int]:
    """Return the numbers of JSON by partition. ``wrong``: the message for a number that is below ``least`` or too
    large. Raises PipelineError."""
    found: dict[TopicPartition, int] = {}
    for topic, every in plain.items():
        if not isinstance(every, dict):
            raise PipelineError(f"{expected}, got {text}")
        for number, value in every.items():
            if not _whole(number) or int(number) > LAST_PARTITION or (topic, int(number)) in found:
                raise PipelineError(f"option {option}: {number} is no partition of {topic}: they are numbered from 0")
            if type(value) is not int or not least <= value <= LARGEST:
                raise PipelineError(f"option {option} for {topic}-{number} {wrong.format(json.dumps(value))}")
            found[topic, int(number)] = value
    return found


def _json(expected: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except PipelineError as error:
        raise PipelineError(f"{expected.partition(':')[0]}: {error} in {text}") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise PipelineError(f"{expected}, got {text}")
    return found


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Build the dict of a JSON object. Raises PipelineError for a name that occurs twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for at, (name, _) in enumerate(pairs) if name in dict(pairs[:at]))
        raise PipelineError(f"{twice} occurs twice")
    return found


def _whole(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 19


def addresses(bootstrap: str, option: str = "kafka.bootstrap.servers") -> tuple[tuple[str, int], ...]:
    """Parse ``HOST:PORT,HOST:PORT``. Raises PipelineError."""
    found = tuple(_address(one, option) for one in bootstrap.split(",") if one.strip())
    if bootstrap and not found:
        raise PipelineError(f"option {option}={bootstrap} names no broker")
    return found


def _address(text: str, option: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    if not host or not _whole(port) or not 0 < int(port) <= 65535:
        raise PipelineError(f"option {option}: {text.strip()} is not HOST:PORT")
    return host.strip("[]"), int(port)
