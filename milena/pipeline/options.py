"""The options of the source and the sink, with the names and meanings that Spark's Kafka source gives them."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from milena.pipeline.errors import PipelineError

EARLIEST: Final = -2
LATEST: Final = -1
"""Offsets in JSON that stand for a place, as in Spark."""
PARTITION_BYTES: Final = 128 << 20

TopicPartition = tuple[str, int]
Offsets = Mapping[TopicPartition, int]
_CHOICES: Final = ("assign", "subscribe", "subscribePattern")
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
    "includeHeaders",
    "isolation.level",
    "kafka.isolation.level",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "maxPartitionBytes",
    "columns",
    "path",
)
_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which topics, or partitions, are read: one of the three."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading begins or ends: EARLIEST, LATEST, an offset for each partition, or a time (ms)."""

    place: int = 0
    offsets: tuple[tuple[TopicPartition, int], ...] = ()
    timestamp: int | None = None
    option: str = ""
    """Which says so, for messages."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What is read, and from where."""

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
    partition_bytes: int = PARTITION_BYTES
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where DataFrames are written to. ``topic``: empty if a column tells."""

    bootstrap: tuple[tuple[str, int], ...]
    topic: str = ""


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Raises PipelineError."""
    options = _Given(given)
    options.check_names(("kafka.bootstrap.servers", "topic", "checkpointLocation"))
    bootstrap = options.text("kafka.bootstrap.servers")
    if not bootstrap:
        raise PipelineError("option kafka.bootstrap.servers is missing: the brokers to write to")
    return SinkOptions(addresses(bootstrap), options.text("topic"))


def source_options(given: Mapping[str, str], *, streaming: bool | None = False) -> SourceOptions:
    """``streaming``: None if that is not known. Raises PipelineError for what is unknown, missing or contradicting."""
    options = _Given(given)
    options.check_names()
    tier = options.one_of("tier", "path")
    bootstrap = options.text("kafka.bootstrap.servers")
    if not tier and not bootstrap:
        raise PipelineError("say where the records are: option tier, kafka.bootstrap.servers or both")
    if not tier and options.text("metadata"):
        raise PipelineError("option metadata tells what is in a tier: it needs option tier")
    if options.text("storageOptions") and "://" not in tier:
        raise PipelineError(f"option storageOptions goes with a URL, and the tier is {tier or 'not named'}")
    if streaming and (options.text("endingOffsets") or options.text("endingTimestamp")):
        raise PipelineError("a streaming query has no end: options endingOffsets and endingTimestamp are for batches")
    first = options.bound("starting", LATEST if streaming else EARLIEST)
    last = options.bound("ending", LATEST)
    if streaming is False and first.place == LATEST:
        raise PipelineError("option startingOffsets=latest is for streaming queries: a batch would be empty")
    if last.place == EARLIEST or any(offset == EARLIEST for _, offset in last.offsets):
        raise PipelineError("option endingOffsets=earliest (-2) would leave nothing to read")
    if streaming is False and any(offset == LATEST for _, offset in first.offsets):
        raise PipelineError("option startingOffsets has latest (-1), which is for streaming queries")
    return SourceOptions(
        options.chosen(),
        first,
        last,
        tier,
        options.text("storageOptions"),
        tuple(filter(None, (one.strip() for one in options.text("metadata").split(",")))),
        addresses(bootstrap),
        options.flag("includeHeaders", default=False),
        options.committed(),
        options.flag("failOnDataLoss", default=True),
        options.number("maxOffsetsPerTrigger", None),
        options.number("maxPartitionBytes", PARTITION_BYTES) or PARTITION_BYTES,
        tuple(filter(None, (one.strip() for one in options.text("columns").split(",")))),
    )


class _Given:
    """Option names are of either case."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): str(value).strip() for name, value in given.items()}

    def text(self, name: str) -> str:
        return self._given.get(name.lower(), "")

    def check_names(self, names: Sequence[str] = _KNOWN) -> None:
        known = {name.lower(): name for name in names}
        for name in self._given.keys() - known.keys():
            alike = difflib.get_close_matches(name, known, 1)
            raise PipelineError(f"option {name} is unknown{f'; is {known[alike[0]]} meant?' if alike else ''}")

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

    def number(self, name: str, default: int | None) -> int | None:
        text = self.text(name).lower()
        if not text:
            return default
        found = re.fullmatch(r"(\d+)([kmg]?)b?", text)
        if found is None or not int(found[1]):
            raise PipelineError(f"option {name}={text} is not a number above 0")
        return int(found[1]) * _UNITS[found[2]]

    def committed(self) -> bool:
        level = self.one_of("isolation.level", "kafka.isolation.level").lower()
        if level not in {"", "read_committed", "read_uncommitted"}:
            raise PipelineError(f"option isolation.level={level} is neither read_committed nor read_uncommitted")
        return level == "read_committed"

    def chosen(self) -> Chosen:
        named = [name for name in _CHOICES if self.text(name)]
        if len(named) != 1:
            what = f"options {' and '.join(named)} contradict each other" if named else "nothing is subscribed to"
            raise PipelineError(f"{what}: set one of {', '.join(_CHOICES)}")
        text = self.text(named[0])
        if named[0] == "subscribe":
            return Chosen(topics=tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip())))
        if named[0] == "subscribePattern":
            try:
                re.compile(text)
            except re.error as error:
                raise PipelineError(f"option subscribePattern={text} is not a pattern: {error}") from None
            return Chosen(pattern=text)
        found = _json("assign", text)
        try:
            return Chosen(partitions=tuple((str(topic), int(one)) for topic, every in found.items() for one in every))
        except (TypeError, ValueError):
            raise PipelineError(f'option assign={text} is not as {{"topic": [0, 1]}}') from None

    def bound(self, side: str, default: int) -> Bound:
        """As in Spark, a timestamp goes before offsets."""
        option = f"{side}Timestamp"
        if text := self.text(option):
            if not text.isdecimal():
                raise PipelineError(f"option {option}={text} is not a time in milliseconds since 1970")
            return Bound(timestamp=int(text), option=option)
        option = f"{side}Offsets"
        text = self.text(option)
        places = {"": default, "earliest": EARLIEST, "latest": LATEST}
        if text.lower() in places:
            return Bound(place=places[text.lower()], option=option)
        return Bound(offsets=tuple(offsets_of(option, text).items()), option=option)


def offsets_of(option: str, text: str) -> dict[TopicPartition, int]:
    """``{"topic": {"0": 23, "1": -2}}``. Raises PipelineError."""
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _json(option, text).items():
        if not isinstance(numbers, dict):
            raise PipelineError(f'option {option} is not as {{"topic": {{"0": 23}}}}: {text}')
        for number, offset in numbers.items():
            if not number.isdecimal() or not isinstance(offset, int) or offset < EARLIEST:
                raise PipelineError(f"option {option}: partition {number} of {topic} has no offset, but {offset}")
            found[topic, int(number)] = offset
    return found


def as_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """The other way round."""
    found: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(number)] = offset
    return found


def _json(option: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise PipelineError(f"option {option}={text} is neither earliest nor latest nor a JSON object")
    return found


def addresses(bootstrap: str) -> tuple[tuple[str, int], ...]:
    """``HOST:PORT,HOST:PORT``. Raises PipelineError."""
    return tuple(_address(one) for one in bootstrap.split(",") if one.strip())


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdecimal():
        raise PipelineError(f"option kafka.bootstrap.servers: {text.strip()} is not HOST:PORT")
    return host.strip("[]"), int(port)
