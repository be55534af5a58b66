"""Reads of consumers, and the content of the tier and of the metadata topic.

::

    read: {at: A, from: 0, records: {0: [0, 0], 1: [4, 1]}}

Each offset from ``from`` on is read with a separate fetch, as if by a new reader. All records must be as expected, up
to the last of ``records``, and none may follow. ``of: u-1`` is another partition. ``leader_epoch`` is the reader's
current leader epoch, ``committed: true`` requests read_committed. ``served_by: {0: uuid-1, 4: local}``: which segment
must serve the reads from each of these offsets on.

::

    list_offsets: {at: A, of: u-1, earliest: [3, 0], latest_tiered: [5, 1], 1700000000000: [4, 1]}

For ListOffsets' special timestamps, or times: the expected offset and its leader epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NotRequired, TypedDict

from milena.lab.scenarios.driver import CONTROLLER
from milena.lab.scenarios.events import EventKind
from milena.lab.scenarios.maps import RESOLVED_BY, CleanerMap, found_in, map_differences, map_of, map_rows
from milena.lab.scenarios.recorder import OBSERVER
from milena.lab.scenarios.remote import (
    Place,
    finished,
    listing,
    metadata_differences,
    metadata_rows,
    paired,
    records_in,
    remote_differences,
    remote_rows,
    segments_in,
)
from milena.lab.scenarios.script import BROKERS, Fields, Partition, partition_of
from milena.lab.scenarios.stage import ScenarioFailed, Stage
from milena.lab.scenarios.tables import Log, Mark, Row, log_of
from milena.node.links.outgoing import ChannelError
from milena.node.serving.lab_commands import LabCommandError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, retriable
from milena.protocol.records.batch import iter_batches
from milena.protocol.records.records import iter_records, offset_of
from milena.protocol.requests.fetch_request import FetchPartition, FetchRequest, encode_fetch_request
from milena.protocol.requests.fetch_response import FetchedPartition, decode_fetch_response
from milena.protocol.types import REMOTE_METADATA_TOPIC
from milena.protocol.uuids import from_text

if TYPE_CHECKING:
    from milena.protocol.apis import ListOffsetsResponse

BY_NAME: Final = 12
"""The last version of Fetch with topic names."""
MAX_BYTES: Final = 1 << 20
MAX_WAIT_MS: Final = 500
TIMEOUT_MS: Final = 30_000
LOCAL: Final = "local"
"""The source of a read that needs no segment of the tier."""
SPECIAL: Final = {"latest": -1, "earliest": -2, "earliest_local": -4, "latest_tiered": -5, "earliest_pending": -6}
"""The special timestamps of ListOffsets."""


class Reader(NamedTuple):
    """A consumer. ``leader_epoch``: its current leader epoch, -1 for none."""

    leader_epoch: int = -1
    committed: bool = False


ANY_CONSUMER: Final = Reader()


Read = TypedDict(
    "Read",
    {
        "at": str,
        "from": int,
        "records": Mapping[int, object],
        "of": NotRequired[str],
        "leader_epoch": NotRequired[int],
        "committed": NotRequired[bool],
        "served_by": NotRequired[Mapping[int, str]],
    },
)
"""The arguments of ``read``."""


async def read(stage: Stage, arguments: Read) -> None:
    """Read as a consumer, and compare the records. Raises ScenarioFailed for a record that is not as expected, or is
    missing."""
    partition = partition_of(arguments.get("of", "t-0"))
    expected = log_of(arguments["records"])
    reader = Reader(arguments.get("leader_epoch", -1), committed=arguments.get("committed", False))
    for offset in sorted(expected):
        if offset >= arguments["from"]:
            await _read_at(stage, arguments["at"], partition, offset, expected, reader)
            source = await _served_by(stage, arguments["at"], partition, offset)
            _check_source(arguments, offset, source)
            value, _ = expected[offset]
            text = f"{offset}: {value}" if source == LOCAL else f"{offset}: {value} ({source})"
            stage.recorder.add(EventKind.READ, "consumer", text, target=arguments["at"])


def _check_source(arguments: Read, offset: int, source: str) -> None:
    """Raise ScenarioFailed if a read is not served by what ``served_by`` names."""
    sources = arguments.get("served_by", {})
    wanted = sources.get(max((first for first in sources if first <= offset), default=-1))
    if wanted not in (None, source):
        raise ScenarioFailed(f"{arguments['at']} serves offset {offset} from {source}, not from {wanted}")


async def _served_by(stage: Stage, broker: str, partition: Partition, offset: int) -> str:
    """Return what has served the broker's last read, which was at ``offset``: ``local``, or a segment's name, or its
    bounds if it has no name in the document."""
    described = await stage.replica(partition.on(broker))
    segments = await stage.command(broker, "remote_reads")
    if offset >= described["local_log_start_offset"] or not segments:
        return LOCAL
    segment = from_text(segments[-1])
    name = stage.segments.name_of(segment)
    if name != str(segment):
        return name
    found = segments_in(await stage.driver.tier(), stage.place(partition))
    return next((f"seg-{one.start}-{one.end}" for one in found if one.id == segment), name)


async def _read_at(stage: Stage, broker: str, partition: Partition, offset: int, expected: Log, reader: Reader) -> None:
    async def missing() -> str | None:
        fetched, data = await fetch_once(stage, broker, partition, offset, reader)
        error = ErrorCode(fetched.error_code)
        if error and retriable(error):
            return f"{broker} answers {error.name}"
        if error:
            raise ScenarioFailed(f"offset {offset} of {partition} at {broker}: {error.name}")
        found = {at: record for at, record in records_in(data).items() if at >= offset}
        if stage.numbering is not None:
            found = stage.numbering.log(found)
        if not found:
            return f"{broker} returns no records from {offset} on"
        wanted = {at: expected.get(at) for at in range(offset, max(found) + 1) if at in expected or at in found}
        if found != wanted:
            raise ScenarioFailed(f"{broker} returns from offset {offset} on {found}, expected {wanted}")
        last = fetched.high_watermark - 1
        return (
            None
            if last == max(expected) or offset < max(expected)
            else f"{broker} has committed {last}, expected {max(expected)}"
        )

    await stage.until(f"reading offset {offset} of {partition} at {broker}", missing)


async def list_offsets(stage: Stage, arguments: Mapping[str, Any]) -> None:
    """Request offsets, and compare them. Raises ScenarioFailed for an offset that does not become as expected in
    time."""
    partition = partition_of(arguments.get("of", "t-0"))
    asked = {name: value for name, value in arguments.items() if name not in ("at", "of")}
    for name, expected in asked.items():

        async def missing(
            timestamp: int = SPECIAL.get(name) or int(name), expected: list[int] = expected
        ) -> str | None:
            response: ListOffsetsResponse = await stage.ask(
                arguments["at"],
                ApiKey.LIST_OFFSETS,
                replica_id=-1,
                isolation_level=0,
                topics=[
                    {
                        "name": partition.topic,
                        "partitions": [
                            {
                                "partition_index": partition.number,
                                "current_leader_epoch": -1,
                                "timestamp": timestamp,
                            }
                        ],
                    }
                ],
                timeout_ms=TIMEOUT_MS,
            )
            found = response.topics[0].partitions[0]
            if found.error_code:
                return ErrorCode(found.error_code).name
            actual = [found.offset, found.leader_epoch]
            return None if actual == expected else f"it is {actual}, expected {expected}"

        await stage.until(f"the offset of {partition} for {name}", missing)


async def fetch_once(
    stage: Stage, broker: str, partition: Partition, offset: int, reader: Reader = ANY_CONSUMER
) -> tuple[FetchedPartition, bytes]:
    """Send one consumer's fetch. Raises LabCommandError if the broker cannot be reached."""
    wanted = FetchPartition(partition.number, offset, MAX_BYTES, reader.leader_epoch)
    request = FetchRequest(
        MAX_WAIT_MS, 1, MAX_BYTES, [(partition.topic, None, [wanted])], isolation_level=int(reader.committed)
    )

    def decode(body: memoryview) -> tuple[FetchedPartition, bytes]:
        fetched = decode_fetch_response(BY_NAME, body).topics[0][2][0]
        assert isinstance(fetched.records, memoryview | bytes | None)
        return fetched, bytes(fetched.records or b"")

    channel = stage.channel(broker, OBSERVER)
    try:
        return await channel.request_raw(ApiKey.FETCH, BY_NAME, [encode_fetch_request(BY_NAME, request)], decode)
    except ChannelError as error:
        raise LabCommandError(str(error)) from error


async def _metadata_records(stage: Stage) -> list[tuple[int, bytes]]:
    """Return all records of the metadata topic as (offset, value), by partition. Raises LabCommandError."""
    found = []
    for name, partition in (await stage.command(CONTROLLER, "partitions", topic=REMOTE_METADATA_TOPIC)).items():
        broker = BROKERS[partition["leader"] - 1] if partition["leader"] > 0 else "none"
        if broker not in stage.up:
            raise LabCommandError(f"{broker} leads {name}")
        found += await _all_records(stage, broker, partition_of(name))
    return found


async def _all_records(stage: Stage, broker: str, partition: Partition) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while True:
        fetched, data = await fetch_once(stage, broker, partition, found[-1][0] + 1 if found else 0)
        if fetched.error_code:
            raise LabCommandError(f"{partition}: {ErrorCode(fetched.error_code).name}")
        before = len(found)
        found += [
            (offset_of(batch, record), bytes(record.value or b""))
            for batch in iter_batches(memoryview(bytearray(data)))
            if not batch.is_control
            for record in iter_records(batch)
        ]
        if len(found) == before or found[-1][0] + 1 >= fetched.high_watermark:
            return found


class Compared(NamedTuple):
    """The comparison of the tier with an expectation: the differences as text, and all rows."""

    wrong: list[str]
    rows: list[Row]


async def _remote(stage: Stage, place: Place, expected: Fields) -> Compared:
    found = segments_in(await stage.driver.tier(), place)
    if (numbering := stage.numbering) is not None:
        found = [replace(one, log=numbering.log(one.log), epochs=numbering.epochs(one.epochs)) for one in found]
    pairs = paired(expected, found, stage.segments)
    return Compared(remote_differences(pairs, stage.segments), remote_rows(pairs, stage.segments))


async def _metadata(stage: Stage, place: Place, expected: Fields) -> Compared:
    found = finished(listing(await _metadata_records(stage), place))
    if (numbering := stage.numbering) is not None:
        found = {segment: one._replace(epochs=numbering.epochs(one.epochs)) for segment, one in found.items()}
    ids = stage.segments
    return Compared(metadata_differences(expected, found, ids), metadata_rows(expected, found, ids))


async def _maps(stage: Stage, place: Place, expected: Fields) -> Compared:
    cache = listing(await _metadata_records(stage), place)
    found = {stage.segments.name_of(segment.id): one for segment, one in found_in(cache)}
    for name in expected:
        if name.startswith(RESOLVED_BY):
            entries = await stage.command(
                name.removeprefix(RESOLVED_BY), "cleaner_offsets", topic=place.topic, partition=place.partition
            )
            found[name] = CleanerMap(dict(entries))
    if (numbering := stage.numbering) is not None:
        numbers = numbering.numbers
        found = {
            name: one._replace(offsets={numbers[epoch]: at for epoch, at in one.offsets.items() if epoch in numbers})
            for name, one in found.items()
        }
    wanted = {name: map_of(fields) for name, fields in expected.items()}
    return Compared(map_differences(wanted, found), map_rows(wanted, found))


async def counted_states(stage: Stage, place: Place) -> dict[str, int]:
    """Return the number of segments by published state. Raises LabCommandError."""
    return Counter(one.state.name for one in listing(await _metadata_records(stage), place).segments())


async def _states(stage: Stage, place: Place, expected: Mapping[str, int]) -> Compared:
    counted = await counted_states(stage, place)
    wrong = [] if counted == dict(expected) else [f"states: expected {dict(expected)}, found {counted}"]
    return Compared(wrong, [_count_row(state, expected, counted) for state in {**expected, **counted}])


def _count_row(state: str, expected: Mapping[str, int], counted: Mapping[str, int]) -> Row:
    wanted, found = (f"{state}: {counts[state]}" if state in counts else None for counts in (expected, counted))
    return Row(wanted, found, Mark.SAME if wanted == found else Mark.DIFFERS)


IN_TIER: Final[Mapping[str, Callable[[Stage, Place, Fields], Awaitable[Compared]]]] = {
    "remote": _remote,
    "metadata": _metadata,
    "maps": _maps,
    "states": _states,
}
"""The expectations of the tier, in this order: ``remote`` assigns names to segments. ``maps`` are the
cleaner-offset maps. ``states`` counts the published segments."""
