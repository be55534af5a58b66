"""Damage in a broker's copy of the metadata log: the copy ends before it, and the rest is fetched anew.

Recovery finds wrong checksums. It takes a base offset or a leader epoch, which no checksum covers, for what the leader
has sent: the broker would then wait for a leader that has such records, or apply its own at wrong offsets.
"""

from __future__ import annotations

from contextlib import closing

from milena.protocol.types import Offset
from milena.runtime.disk import Disk
from milena.runtime.logging import get_logger
from milena.storage.files.names import offset_of_file
from milena.storage.log.segment_swap import SET_ASIDE
from milena.storage.log.survey import survey


def cut_damage(disk: Disk, folder: str, snapshot_end: Offset) -> None:
    """End the copy in ``folder``, which nobody has open, before the first damage that recovery would look at: from the
    segment with ``snapshot_end`` on. Blocks. Raises OSError."""
    found = survey(disk, folder, since=snapshot_end)
    damage = next(iter(found.damages), None)
    if damage is None or damage.torn:  # recovery cuts a torn end
        return
    get_logger("metadata").warning(
        "the copy of the metadata log is damaged: it is fetched anew from there",
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
