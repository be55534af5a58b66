"""What a controller makes of damage in its metadata log, before the log is opened.

Records that the latest snapshot stands for need not be sound: the log then begins behind the damage. Damage with
nothing behind it, at the end of what is known to be committed, is the torn end of a process that was killed, and
recovery cuts it. Any other damage takes committed records along. A single voter has nobody to fetch them from, so that
it must not lead without them: topics and configurations would be forgotten in silence.

Writes that a loss of power has kept from the disk, as pages of zeros show them, are a torn end wherever they lie: what
follows them was not synced either.
"""

from __future__ import annotations

from milena.protocol.types import Offset
from milena.runtime.disk import Disk
from milena.runtime.logging import get_logger
from milena.storage.log.segment_swap import finish_swap, swap_segments
from milena.storage.log.survey import Run, Survey, survey


class MetadataLost(ValueError):
    """Committed records are damaged or missing; the text says which, where, and what can be done."""


def prepare(disk: Disk, folder: str, snapshot_end: Offset, committed: Offset) -> None:
    """Leave in ``folder`` what recovery may take for the log, with a snapshot that ends at ``snapshot_end`` (0: none).

    ``committed``: what is before it must be there, as far as that is known. Blocks. Raises MetadataLost, OSError.
    """
    finish_swap(disk, folder)
    found = survey(disk, folder, since=snapshot_end)
    run = judge(found, folder, snapshot_end, committed)
    if run is None or run.start in found.bases:
        return
    aside = swap_segments(disk, folder, run.start, run.pieces)
    get_logger("metadata").warning(
        "the metadata log is damaged where a snapshot covers it: it begins behind the damage now",
        offset=run.start,
        damaged=[f"{damage.path} at byte {damage.position}" for damage in found.damages if damage.offset <= run.start],
        set_aside=aside,
    )


def judge(found: Survey, folder: str, snapshot_end: Offset, committed: Offset) -> Run | None:
    """The run that the log goes on from ``snapshot_end`` with, None if there is nothing. Raises MetadataLost."""
    run = found.run_with(snapshot_end)
    end = snapshot_end if run is None else run.end
    behind = [other for other in found.runs if other.start >= end and other is not run]
    if run is None and found.bases and found.bases[0] > snapshot_end:
        raise MetadataLost(
            f"it begins at offset {found.bases[0]}, and no snapshot stands for what is before that. `milena metadata "
            f"repair {folder} --from FOLDER` takes one from a broker's copy (its __cluster_metadata-0 folder)"
        )
    damage = found.damage_from(end)
    torn = damage is None or damage.torn
    if (behind and not torn) or end < committed or (damage is not None and damage.misplaced and not torn):
        raise MetadataLost(_explained(found, folder, end, behind, committed))
    return run


def _explained(found: Survey, folder: str, end: Offset, behind: list[Run], committed: Offset) -> str:
    damage = found.damage_from(end)
    where = "" if damage is None else f" ({damage.path} at byte {damage.position}: {damage.reason})"
    if behind:
        records = sum(run.end - run.start for run in behind)
        last = behind[-1].end - 1
        lost = (
            f"the offsets {end} to {behind[0].start - 1} are lost{where}, with {records} sound ones up to {last} behind"
        )
    elif end >= committed:
        lost = f"it ends at offset {end}{where}, and a whole batch is behind"
    else:
        lost = f"it ends at offset {end}{where}, though the records before {committed} were committed"
    return (
        f"{lost}. This controller does not start without them. `milena metadata repair {folder} --from FOLDER` takes "
        f"them from a broker's copy (its __cluster_metadata-0 folder); "
        f"`milena metadata repair {folder} --cut` gives up everything from offset {end} on"
    )
