"""`milena topic delete-records`: delete the records of partitions before an offset."""

from __future__ import annotations

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.offsets import EARLIEST, LATEST, find_offset
from milena.command_line.errors import UsageError, UserError
from milena.command_line.options import CommandLine, Positional, Values
from milena.command_line.table import say, show_json
from milena.commands.client import BOOTSTRAP, JSON, TopicPartition, split_partition
from milena.protocol.errors import ErrorCode, KafkaError

HIGH_WATERMARK = -1
"""The offset in DeleteRecords that means the high watermark."""
DELETE_RECORDS = CommandLine(
    "topic delete-records",
    "Delete the records of partitions before an offset, also in the remote tier; -1: before the high watermark.\n"
    "It cannot be undone.",
    [BOOTSTRAP, JSON],
    [Positional("TARGET", "as TOPIC:PARTITION=OFFSET", many=True)],
    ["milena topic delete-records orders:0=1500 orders:1=-1"],
)


async def delete_records(values: Values, cluster: Cluster) -> int:
    targets = dict(parse_target(word) for word in values.target)
    if not targets:
        raise UsageError("milena topic delete-records needs TOPIC:PARTITION=OFFSET")
    starts: dict[TopicPartition, int] = {}
    for (topic, number), offset in targets.items():
        try:
            starts |= await admin.delete_records(cluster, {(topic, number): offset})
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            begin, end = [(await find_offset(cluster, topic, number, at)).offset for at in (EARLIEST, LATEST)]
            raise UserError(f"{topic}-{number} begins at {begin} and ends before {end}; not {offset}") from None
        if not values.json:
            say(f"{topic}-{number}: begins at offset {starts[topic, number]}")
    if values.json:
        show_json([{"topic": one[0], "partition": one[1], "log_start_offset": at} for one, at in starts.items()])
    return 0


def parse_target(word: str) -> tuple[TopicPartition, int]:
    """``TOPIC:PARTITION=OFFSET``. Raises UsageError."""
    name, _, text = word.partition("=")
    if ":" not in name or not (text.isdecimal() or text == str(HIGH_WATERMARK)):
        raise UsageError(f"{word}: write it as TOPIC:PARTITION=OFFSET")
    topic, partition = split_partition(name)
    assert partition is not None
    return (topic, partition), int(text)
