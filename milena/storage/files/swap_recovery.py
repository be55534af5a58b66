"""Completes or undoes the swaps of segments that a crash interrupted, like Kafka's ``LogLoader``.

A swap writes complete new segments as ``.cleaned`` files, renames them to ``.swap`` from the highest offset down,
renames the old segments to ``.deleted``, and removes the suffix ``.swap`` (``LocalLog.replaceSegments``). So if there
is a ``.cleaned`` file, all old segments still exist. If there are only ``.swap`` files, all new segments exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing

from milena.protocol.types import Offset
from milena.runtime.disk import Disk, File
from milena.storage.files.names import CLEANED, LOG, SEGMENT_SUFFIXES, SWAP, offset_of_file, segment_file


def finish_swaps(disk: Disk, folder: str, names: Iterable[str], end_of: Callable[[File, Offset], int]) -> list[Offset]:
    """Complete or undo the swaps in the folder of a log that is not open. ``names``: the files there. ``end_of``:
    returns the offset after the last record of a log file, given its base offset.

    Returns the base offsets of the new segments. Raises OSError.
    """
    swaps = {name: base for name in names if name.endswith(SWAP) and (base := offset_of_file(name)) is not None}
    if not swaps:
        return []
    cleaned = [base for name in names if name.endswith(CLEANED) and (base := offset_of_file(name)) is not None]
    for name, base in list(swaps.items()):
        if cleaned and base >= min(cleaned):  # not all files of the swap were renamed: undo it
            disk.remove(f"{folder}/{name}")
            del swaps[name]
    # The renames may not be synced yet, and the old segments are removed next.
    disk.sync_folder(folder)
    new = [Offset(base) for name, base in swaps.items() if name == segment_file(base, LOG) + SWAP]
    if new:
        end = max(_end(disk, f"{folder}/{segment_file(base, LOG)}{SWAP}", base, end_of) for base in new)
        for name in names:
            offset = offset_of_file(name)
            if offset is not None and name.endswith(SEGMENT_SUFFIXES) and min(new) <= offset < end:
                disk.remove(f"{folder}/{name}")
    for name in swaps:
        disk.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(SWAP)}", sync=False)
    disk.sync_folder(folder)
    return new


def _end(disk: Disk, path: str, base: Offset, end_of: Callable[[File, Offset], int]) -> int:
    with closing(disk.open(path, read_only=True)) as file:
        return end_of(file, base)
