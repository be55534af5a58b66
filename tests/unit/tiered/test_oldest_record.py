"""The timestamp of the oldest record of a log in the tier, as far as the first records of its batches tell."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from milena.protocol.records.batch import BatchView, TimestampType
from milena.protocol.records.records import BatchBuilder
from milena.tiered.reading.log_contents import LogContents


def batch(timestamps: Sequence[int], **more: object) -> bytes:
    builder = BatchBuilder()
    for timestamp in timestamps:
        builder.append(timestamp=timestamp, value=b"v")
    return builder.build(**more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("batches", "oldest"),
    [
        ([batch([70, 80]), batch([50, 60])], 50),
        ([batch([70]), batch([0], control=True)], 70),
        ([batch([5, 90], timestamp_type=TimestampType.LOG_APPEND_TIME)], 90),
        ([batch([0], control=True)], None),
        ([batch([70, 60], delete_horizon=True)], 60),  # after cleaning, records are relative to the delete horizon
        ([], None),
    ],
)
def test_the_oldest_record_is_found_in_any_batch(batches: list[bytes], oldest: int | None) -> None:
    contents, position = LogContents(), 0
    for data in batches:
        contents.take(position, BatchView(memoryview(data)))
        position += len(data)
    assert contents.min_timestamp_ms == oldest
