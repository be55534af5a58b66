"""``kafka-delete-records``: deletes the records before offsets (Kafka's DeleteRecordsCommand)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from milena.client import admin
from milena.client.cluster import Cluster
from milena.protocol.errors import KafkaError
from milena.protocol.types import TopicPartition
from milena.scripts.common.connection import BOOTSTRAP, COMMAND_CONFIG, SERVER, client_of, run
from milena.scripts.common.failures import ScriptError, failure_of
from milena.scripts.common.json_files import partitions_in, read_json
from milena.scripts.common.options import Option, Parser

FILE: Final = "offset-json-file"
PARSER: Final = Parser(
    "This tool helps to delete records of the given partitions down to the specified offset.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option(
            FILE,
            'REQUIRED: A file such as {"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}. '
            "The offset -1 is the high watermark.",
            "file",
        ),
    ],
)


def main(arguments: Sequence[str]) -> int:
    found = PARSER.parse(arguments)
    found.require(SERVER, FILE)
    offsets = offsets_of(found.one(FILE))
    return run(client_of(found), partial(delete, offsets), "deleteRecords")


def offsets_of(path: str) -> dict[TopicPartition, int]:
    """Return the offsets in the file. Raises ScriptError."""
    content = read_json(path, "The input string is not a valid JSON")
    if content.get("version", 1) != 1:
        raise ScriptError(f"Not supported version field value {content['version']}")
    if "partitions" not in content:
        raise ScriptError("Missing partitions field")
    offsets: dict[TopicPartition, int] = {}
    twice = []
    for partition, entry in partitions_in(content):
        offset = entry.get("offset")
        if not isinstance(offset, int):
            raise ScriptError(f"Missing offset of {partition[0]}-{partition[1]}")
        if partition in offsets:
            twice.append(f"{partition[0]}-{partition[1]}")
        offsets[partition] = offset
    if twice:
        raise ScriptError(f"Offset json file contains duplicate topic partitions: {','.join(twice)}")
    return offsets


async def delete(offsets: dict[TopicPartition, int], cluster: Cluster) -> int:
    print("Executing records delete operation")
    print("Records delete operation completed:")
    for (topic, number), offset in offsets.items():
        try:
            starts = await admin.delete_records(cluster, {(topic, number): offset})
        except KafkaError as error:
            text = failure_of(KafkaError(error.code, None)).full
            print(f"partition: {topic}-{number}\terror: {text}")
        else:
            print(f"partition: {topic}-{number}\tlow_watermark: {starts[topic, number]}")
    return 0
