"""How a controller treats damage in its metadata log, before it opens the log.

Records that the latest snapshot covers may be damaged: the log then begins behind the damage. Damage with nothing
behind it, beyond what is known to be committed, is the torn end that a killed process leaves, and recovery cuts it off.
Any other damage means that committed records are lost. A single voter cannot fetch them from another one, so it must
not lead: topics and configurations would silently disappear.

Writes that never reached the disk before a loss of power show as pages of zeros. They are a torn end wherever they are:
what follows them was not synced either.
"""

from __future__ import annotations

from milena.protocol.types import Offset
from milena.runtime.disk import Disk
from milena.runtime.logging import get_logger
from milena.storage.log.segment_swap import finish_swap, swap_segments
from milena.storage.log.survey import Run, Survey, survey


class MetadataLost(ValueError):
    """Committed records are damaged or missing. The message says which, where, and what can be done."""


def prepare(disk: Disk, folder: str, snapshot_end: Offset, committed: Offset) -> None:
    """Leave in ``folder`` only what recovery may treat as the log, given a snapshot that ends at ``snapshot_end`` (0:
    none).

    ``committed``: records before it must exist, as far as is known. Blocking. Raises MetadataLost, OSError.
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
    """The run of batches that continues the log from ``snapshot_end``; None if there is none. Raises MetadataLost."""
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
