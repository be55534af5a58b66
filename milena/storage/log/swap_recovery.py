"""Ends the swaps of segments that a crash interrupted, as Kafka's ``LogLoader`` does.

Who replaces segments writes the new ones whole, as ``.cleaned`` files, renames them to ``.swap`` from the highest
offset on, then the old ones to ``.deleted``, and drops the ``.swap`` (``LocalLog.replaceSegments``). So a ``.cleaned``
file means that the old segments are all there, and a ``.swap`` file without one that the new ones are.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from milena.protocol.records.batch import CorruptBatch
from milena.protocol.types import Offset
from milena.runtime.disk import Disk
from milena.storage.files.names import CLEANED, LOG, SWAP, offset_of_file, segment_file
from milena.storage.log.batch_scan import LOOKUP_CHUNK, scan_batches
from milena.storage.log.segment import SUFFIXES


def finish_swaps(disk: Disk, folder: str, names: Iterable[str]) -> list[Offset]:
    """Undo or complete the swaps in the folder of a log that is not open, which has the files ``names``. Returns the
    base offsets of the segments that are now in place. Raises OSError."""
    swaps = {name: base for name in names if name.endswith(SWAP) and (base := offset_of_file(name)) is not None}
    if not swaps:
        return []
    cleaned = [base for name in names if name.endswith(CLEANED) and (base := offset_of_file(name)) is not None]
    for name, base in list(swaps.items()):
        if cleaned and base >= min(cleaned):
            disk.remove(f"{folder}/{name}")
            del swaps[name]
    # The process may have ended before the names were synced, and old segments go now.
    disk.sync_folder(folder)
    new = [Offset(base) for name, base in swaps.items() if name == segment_file(base, LOG) + SWAP]
    if new:
        end = max(_end(disk, f"{folder}/{segment_file(base, LOG)}{SWAP}", base) for base in new)
        for name in names:
            offset = offset_of_file(name)
            if offset is not None and name.endswith(SUFFIXES) and min(new) <= offset < end:
                disk.remove(f"{folder}/{name}")
    for name in swaps:
        disk.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(SWAP)}", sync=False)
    disk.sync_folder(folder)
    return new


def _end(disk: Disk, path: str, base: Offset) -> int:
    """The offset after the last record. Raises OSError."""
    end = int(base)
    with closing(disk.open(path, read_only=True)) as file:
        try:
            for batch in scan_batches(file, 0, file.size, chunk=LOOKUP_CHUNK):
                end = batch.last_offset + 1
        except CorruptBatch:
            pass  # recovery cuts it, or a reader is told
    return end
