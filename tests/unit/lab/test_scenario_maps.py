"""Cleaner-offset maps in scenarios: how they are compared and written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from milena.lab.scenarios.maps import CleanerMap, found_in, map_differences, map_of, map_rows
from milena.lab.scenarios.tables import Mark, Row, TableError
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.segment_metadata import RemoteLogSegmentState
from tests.unit.tiered.segments import offsets, segment

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED


def test_a_map_is_written_as_in_the_document() -> None:
    assert str(map_of({0: 100, 1: 155})) == "{LE-0 -> CO-100, LE-1 -> CO-155}"
    assert str(map_of({0: 100, 1: None})) == "{LE-0 -> CO-100, LE-1 ->}"
    assert str(map_of({0: 123, "is": "rejected"})) == "{LE-0 -> CO-123} rejected"


def test_rows_are_in_the_order_of_the_expected_maps() -> None:
    found = {"Seg-1": CleanerMap({0: 123}), "Seg-0": CleanerMap({0: 100})}
    assert map_rows({"Seg-0": CleanerMap({0: 100}), "Seg-2": CleanerMap({0: 1})}, found) == [
        Row("Seg-0: {LE-0 -> CO-100}", "Seg-0: {LE-0 -> CO-100}", Mark.SAME),
        Row("Seg-2: {LE-0 -> CO-1}", None, Mark.DIFFERS),
        Row(None, "Seg-1: {LE-0 -> CO-123}", Mark.DIFFERS),
    ]


def test_a_map_is_rejected_or_unfinished_and_nothing_else() -> None:
    with pytest.raises(TableError, match="'late'"):
        map_of({0: 123, "is": "late"})


def test_equal_maps_do_not_differ_and_every_other_one_is_named() -> None:
    found = {"Seg-0": CleanerMap({0: 100}), "Seg-1": CleanerMap({0: 123}, "rejected")}
    assert map_differences(found, found) == []
    assert map_differences({"Seg-0": CleanerMap({0: 101}), "Seg-2": CleanerMap({0: 1})}, found) == [
        "maps: Seg-1 is not expected: {LE-0 -> CO-123} rejected",
        "maps: expected Seg-0 with {LE-0 -> CO-101}, found {LE-0 -> CO-100}",
        "maps: nothing of Seg-2",
    ]


def test_a_map_that_a_later_leader_contradicts_is_rejected_and_one_of_a_pending_copy_is_unfinished() -> None:
    cleanings: list[tuple[RemoteLogSegmentState, dict[int, int | None]]] = [
        (FINISHED, {0: 100}),
        (FINISHED, {0: 100, 1: 155}),
        (FINISHED, {0: 123}),
        (STARTED, {0: 124}),
    ]
    segments = [
        replace(segment(number, 100 * number, 100 * number + 99, {0: 0}, state=state), cleaned=offsets(entries))
        for number, (state, entries) in enumerate(cleanings)
    ]
    cache = RemoteLogMetadataCache.restored(segments, {})
    assert [str(one) for _, one in found_in(cache)] == [
        "{LE-0 -> CO-100}",
        "{LE-0 -> CO-100, LE-1 -> CO-155}",
        "{LE-0 -> CO-123} rejected",
        "{LE-0 -> CO-124} unfinished",
    ]


def test_a_segment_that_was_not_cleaned_has_no_map() -> None:
    assert found_in(RemoteLogMetadataCache.restored([segment(1, 0, 99, {0: 0}, state=FINISHED)], {})) == []
