"""``kafka-consumer-groups --reset-offsets``: the new committed offsets of a group without members."""

from __future__ import annotations

import csv
import datetime
import re
from collections.abc import Mapping, Sequence
from typing import Final

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.membership import Membership
from milena.client.offsets import EARLIEST, LATEST, find_offset
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import TopicPartition
from milena.runtime.numbers import whole
from milena.runtime.printable import printable
from milena.scripts.common.connection import warn
from milena.scripts.common.failures import ScriptError, failure_of
from milena.scripts.common.options import Found

SCENARIOS: Final = (
    "to-offset",
    "shift-by",
    "to-datetime",
    "by-duration",
    "to-earliest",
    "to-latest",
    "to-current",
    "from-file",
)
UNQUOTED: Final = 24
"""The longest text that a CSV file has without quotation marks."""
WITHOUT_MEMBERS: Final = ("Empty", "Dead")
DURATION: Final = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(?:T(?=[-+\d])(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+(?:\.\d{0,9})?)S)?)?",
    re.IGNORECASE,
)
"""A duration as java.time.Duration reads it."""

Offsets = dict[TopicPartition, int]


async def reset(found: Found, cluster: Cluster) -> int:
    """Show the new offsets, and commit them with --execute. Raises UsageError, ScriptError, KafkaError."""
    names = [*await admin.list_groups(cluster)] if found.has("all-groups") else found.all("group")
    results: dict[str, Offsets] = {}
    for group in dict.fromkeys(names):
        state = await state_of(cluster, group)
        if state not in WITHOUT_MEMBERS:
            print(
                f"\nError: Assignments can only be reset if the group '{group}' is inactive, but the current state is "
                f"{state}."
            )
            results[group] = {}
            continue
        results[group] = offsets = await prepared(found, cluster, group)
        if found.has("execute") and not found.has("dry-run") and offsets:
            await commit(cluster, group, offsets)
    if found.has("export"):
        print_csv(results, single=len(found.all("group")) == 1)
    else:
        print_table(results)
    return 0


async def commit(cluster: Cluster, group: str, offsets: Offsets) -> None:
    """Commit offsets of a group without members. Raises KafkaError."""
    outsider = Membership(cluster, group, [])
    try:
        await outsider.commit(offsets)
    finally:
        await outsider.leave()


async def state_of(cluster: Cluster, group: str) -> str:
    """Return the state of a group; Dead if it does not exist."""
    try:
        return (await admin.describe_group(cluster, group)).state
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return "Dead"
        raise


def print_csv(results: Mapping[str, Offsets], *, single: bool) -> None:
    for group, offsets in results.items():
        for (topic, partition), offset in offsets.items():
            row = f"{quoted(topic)},{partition},{offset}"
            print(row if single else f"{quoted(group)},{row}")
    print()


def quoted(text: str) -> str:
    """Return a text as Kafka's writer of CSV (Jackson) writes it, which quotes long ones, too."""
    if len(text) <= UNQUOTED and not {*text} & {*',"\n\r'}:
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def print_table(results: Mapping[str, Offsets]) -> None:
    rows = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")] if results else []
    for group, offsets in results.items():
        rows += [(printable(group), topic, str(number), str(offset)) for (topic, number), offset in offsets.items()]
    widths = [max([15, *(len(row[column]) for row in rows)]) for column in (0, 1)]
    for group, topic, number, offset in rows:
        print(f"\n{group:<{widths[0]}} {topic:<{widths[1]}} {number:<10} {offset}", end="")
    print()


async def prepared(found: Found, cluster: Cluster, group: str) -> Offsets:
    """Return the new offsets of a group. Raises UsageError, ScriptError, KafkaError."""
    scenario = next((one for one in SCENARIOS if found.has(one)), None)
    if scenario is None:
        scenarios = ", ".join(f"[{one}]" for one in SCENARIOS)
        raise found.wrong(f"Option '[reset-offsets]' requires one of the following scenarios: [{scenarios}]")
    if scenario == "from-file":
        return await in_range(cluster, planned(found, group))
    committed = await admin.group_offsets(cluster, group)
    partitions = await scope(found, cluster, committed)
    match scenario:
        case "to-offset":
            return await in_range(cluster, dict.fromkeys(partitions, found.one(scenario)))
        case "shift-by":
            for topic, number in partitions:
                if (topic, number) not in committed:
                    raise found.wrong(
                        f"Cannot shift offset for partition {topic}-{number} since there is no current committed offset"
                    )
            return await in_range(cluster, {one: committed[one] + found.one(scenario) for one in partitions})
        case "to-current":
            return {
                one: committed[one] if one in committed else await offset_at(cluster, one, LATEST) for one in partitions
            }
        case "to-earliest" | "to-latest":
            return {
                one: await offset_at(cluster, one, EARLIEST if scenario == "to-earliest" else LATEST)
                for one in partitions
            }
    text = found.one(scenario)
    now = cluster.runtime.clock.time_ms()
    time = time_of(text) if scenario == "to-datetime" else now - milliseconds_of(text)
    return {one: await offset_since(cluster, one, time) for one in partitions}


async def scope(found: Found, cluster: Cluster, committed: Offsets) -> list[TopicPartition]:
    """Return the partitions to reset. Raises UsageError, KafkaError."""
    if found.has("all-topics"):
        return list(committed)
    if not found.has("topic"):
        raise found.wrong("One of the reset scopes should be defined: --all-topics, --topic.")
    partitions, missing = await partitions_of(found, found.all("topic"), cluster)
    for error in missing.values():
        raise error
    return partitions


async def partitions_of(
    found: Found, words: Sequence[str], cluster: Cluster
) -> tuple[list[TopicPartition], dict[TopicPartition, KafkaError]]:
    """Return the partitions that ``topic`` or ``topic:0,1`` name, and the errors of topics that do not exist. Raises
    UsageError."""
    given: list[TopicPartition] = []
    topics = [word for word in words if ":" not in word]
    for word in words:
        if ":" not in word:
            continue
        topic, _, text = word.partition(":")
        for part in text.split(","):
            number = whole(part)
            if number is None:
                raise found.wrong(f"Invalid partition '{part}' specified in topic arg '{word}''")
            given.append((topic, number))
    missing: dict[TopicPartition, KafkaError] = {}
    view = await cluster.metadata(topics)
    for topic in topics:
        known = view.topics[topic]
        if known.error:
            missing[topic, -1] = KafkaError(ErrorCode(known.error), None)
        given += [(topic, number) for number in sorted(known.partitions)]
    return given, missing


def planned(found: Found, group: str) -> Offsets:
    """Return the offsets that --from-file has for a group. Raises ScriptError."""
    path = found.one("from-file")
    try:
        with open(path, encoding="utf-8") as file:
            rows = [row for row in csv.reader(file) if row]
    except OSError as error:
        raise failure_of(error) from None
    except (ValueError, csv.Error) as error:
        raise ScriptError(f"{path}: {error}") from None
    plan: Offsets = {}
    for row in rows:
        name, topic, *numbers = [group, *row] if len(row) == 3 else row
        partition, offset = (whole(text) for text in numbers) if len(numbers) == 2 else (None, None)
        if partition is None or offset is None:
            raise ScriptError(f"{path}: {','.join(row)} is not of the form [group,]topic,partition,offset")
        if name == group:
            plan[topic, partition] = offset
    if not plan:
        print(f"\nError: No reset plan for group {group} found")
    return plan


async def in_range(cluster: Cluster, wanted: Offsets) -> Offsets:
    """Return the offsets, limited to those that the partitions have."""
    result: Offsets = {}
    for partition, offset in wanted.items():
        end, start = await offset_at(cluster, partition, LATEST), await offset_at(cluster, partition, EARLIEST)
        name = f"{partition[0]}-{partition[1]}"
        if offset > end:
            warn(
                f"New offset ({offset}) is higher than latest offset for topic partition {name}. Value will be set to "
                f"{end}"
            )
        elif offset < start:
            warn(
                f"New offset ({offset}) is lower than earliest offset for topic partition {name}. Value will be set to "
                f"{start}"
            )
        result[partition] = min(max(offset, start), end)
    return result


async def offset_at(cluster: Cluster, partition: TopicPartition, time: int) -> int:
    """Return the offset of a time in ms, or of EARLIEST or LATEST; -1 if there is none. Raises KafkaError."""
    return (await find_offset(cluster, *partition, time)).offset


async def offset_since(cluster: Cluster, partition: TopicPartition, time: int) -> int:
    """Return the offset of the first record since a time; the end if there is none."""
    offset = await offset_at(cluster, partition, time)
    if offset >= 0:
        return offset
    print(f"\nWarn: Partition {partition[1]} from topic {partition[0]} is empty. Falling back to latest known offset.")
    return await offset_at(cluster, partition, LATEST)


def time_of(text: str) -> int:
    """Parse ``YYYY-MM-DDTHH:mm:SS.sss``, with or without a zone (UTC by default), to ms. Raises ScriptError."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})(Z|[-+]\d\d(?::?\d\d)?)?", text)
    try:
        if match is None:
            raise ValueError
        moment = datetime.datetime.fromisoformat(match[1] + (match[2] or "Z"))
    except ValueError:
        raise ScriptError(
            f'Unparseable date: "{text}". Write it as YYYY-MM-DDTHH:mm:SS.sss', "java.text.ParseException"
        ) from None
    return round(moment.timestamp() * 1000)


def milliseconds_of(text: str) -> int:
    """Parse a duration such as ``P1DT2H``. Raises ScriptError."""
    match = DURATION.fullmatch(text)
    if match is None or not any(match.groups()[1:]):
        raise ScriptError("Text cannot be parsed to a Duration", "java.time.format.DateTimeParseException")
    sign, days, hours, minutes, seconds = match.groups()
    total = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60 + float(seconds or 0)
    return round(total * 1000) * (-1 if sign == "-" else 1)
