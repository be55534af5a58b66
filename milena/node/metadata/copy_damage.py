"""Truncates a broker's damaged copy of the metadata log, so that the observer fetches the truncated part again.

Log recovery detects wrong checksums. But no checksum covers a batch's base offset and leader epoch. If these are
damaged, the broker would wait for a leader with such an epoch, or replay records at wrong offsets.
"""

from __future__ import annotations

from contextlib import closing

from milena.protocol.types import Offset
from milena.runtime.disk import Disk
from milena.runtime.logging import get_logger
from milena.storage.files.names import offset_of_file
from milena.storage.log.segment_swap import SET_ASIDE
from milena.storage.log.survey import survey


def truncate_at_damage(disk: Disk, folder: str, snapshot_end: Offset) -> None:
    """Truncate the log in ``folder``, which must not be open, at the first damaged batch in the segment with
    ``snapshot_end`` or later ones; earlier ones are not read. Blocks. Raises OSError."""
    result = survey(disk, folder, since=snapshot_end)
    damage = next(iter(result.damages), None)
    if damage is None or damage.torn:  # recovery truncates a torn end
        return
    get_logger("metadata").warning(
        "metadata log copy damaged, truncating it",
        offset=damage.offset,
        file=damage.path,
        position=damage.position,
        reason=damage.reason,
    )
    base = offset_of_file(damage.path.rpartition("/")[2])
    assert base is not None
    for name in disk.list(folder):
        later = offset_of_file(name)
        if later is not None and later > base and not name.endswith(SET_ASIDE):
            disk.remove(f"{folder}/{name}")
    disk.sync_folder(folder)
    with closing(disk.open(damage.path)) as file:
        file.truncate(damage.position)
        file.sync()
