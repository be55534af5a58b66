"""Cleaner-offset maps of a partition's segments (KIP-1272, a draft), compared with a scenario's expectations.

::

    maps: {Seg-0: {0: 100}, Seg-1: {0: 123, is: rejected}, resolved by B: {0: 100, 1: null}}

Each cleaned segment that the metadata topic lists, by its name, with the offset for each leader epoch (null: started,
nothing cleaned). ``is``: ``rejected``, because the map of a later leader contradicts it, or ``unfinished``, because the
copy is not finished, or its end was fenced. ``resolved by B`` is the map with which leader B starts to clean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from milena.lab.scenarios.tables import Mark, Row, TableError
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata

RESOLVED_BY: Final = "resolved by "
IS: Final = "is"
VALID: Final = ""
REJECTED: Final = "rejected"
UNFINISHED: Final = "unfinished"


class CleanerMap(NamedTuple):
    """One map: leader epochs to offsets, and whether it is valid."""

    offsets: Mapping[int, int | None]
    status: str = VALID

    def __str__(self) -> str:
        entries = (
            f"LE-{epoch} ->{'' if offset is None else f' CO-{offset}'}"
            for epoch, offset in sorted(self.offsets.items())
        )
        return f"{{{', '.join(entries)}}} {self.status}".rstrip()


def map_of(fields: object) -> CleanerMap:
    """Parse an expected map. Raises TableError."""
    if not isinstance(fields, Mapping):
        raise TableError(f"a cleaner-offset map is {{leader epoch: offset}}, not {fields!r}")
    status = fields.get(IS, VALID)
    if status not in (VALID, REJECTED, UNFINISHED):
        raise TableError(f"a cleaner-offset map is {REJECTED} or {UNFINISHED}, not {status!r}")
    return CleanerMap({int(epoch): offset for epoch, offset in fields.items() if epoch != IS}, status)


def map_rows(expected: Mapping[str, CleanerMap], found: Mapping[str, CleanerMap]) -> list[Row]:
    """Return a row for each expected map, and then for the others, as the document writes them."""
    rows = []
    for name in {**expected, **found}:
        left, right = (f"{name}: {maps[name]}" if name in maps else None for maps in (expected, found))
        rows.append(Row(left, right, Mark.SAME if left == right else Mark.DIFFERS))
    return rows


def found_in(cache: RemoteLogMetadataCache) -> list[tuple[RemoteLogSegmentMetadata, CleanerMap]]:
    """Return the cleaned segments that are listed, by start offset."""
    return [
        (one, CleanerMap({entry.epoch: entry.offset for entry in one.cleaned}, _status(cache, one)))
        for one in cache.segments()
        if one.cleaned
    ]


def _status(cache: RemoteLogMetadataCache, segment: RemoteLogSegmentMetadata) -> str:
    if not segment.was_copied:
        return UNFINISHED
    return REJECTED if cache.cleanings.exclusion(segment).rejected_by is not None else VALID


def map_differences(expected: Mapping[str, CleanerMap], found: Mapping[str, CleanerMap]) -> list[str]:
    """Return the differences as text."""
    wrong = [f"maps: {name} is not expected: {one}" for name, one in found.items() if name not in expected]
    for name, one in expected.items():
        if name not in found:
            wrong.append(f"maps: nothing of {name}")
        elif found[name] != one:
            wrong.append(f"maps: expected {name} with {one}, found {found[name]}")
    return wrong
