"""Checks the metadata log for damage before the controller opens it.

Damaged records that the latest snapshot covers are dropped: the log then starts after them. Damage at the end of the
log, after all records known to be committed, is a write torn by a crash; recovery truncates it. Any other damage means
that committed records are lost. A single voter cannot fetch them from another one, so it must not become active:
topics and configurations would silently disappear.

Writes that never reached the disk before a power loss show as pages of zeros. They count as a torn end wherever they
are, because what follows them was not synced either.
"""

from __future__ import annotations

from milena.protocol.types import Offset
from milena.runtime.disk import Disk
from milena.runtime.logging import get_logger
from milena.storage.log.segment_swap import finish_swap, swap_segments
from milena.storage.log.survey import Run, Survey, survey


class MetadataLost(ValueError):
    """Committed records are damaged or missing. The message names the offsets, the file, and the command that helps."""


def prepare(disk: Disk, folder: str, snapshot_end: Offset, committed: Offset) -> None:
    """Leave in ``folder`` only the segments that recovery may open, given a snapshot that ends at ``snapshot_end`` (0:
    none).

    ``committed``: the offset below which records are known to be committed. Blocking. Raises MetadataLost, OSError.
    """
    finish_swap(disk, folder)
    log_survey = survey(disk, folder, since=snapshot_end)
    run = judge(log_survey, folder, snapshot_end, committed)
    if run is None or run.start in log_survey.bases:
        return
    aside = swap_segments(disk, folder, run.start, run.pieces)
    get_logger("metadata").warning(
        "metadata log truncated to its snapshot, damaged records dropped",
        offset=run.start,
        damaged=[
            f"{damage.path} at byte {damage.position}" for damage in log_survey.damages if damage.offset <= run.start
        ],
        set_aside=aside,
    )


def judge(log_survey: Survey, folder: str, snapshot_end: Offset, committed: Offset) -> Run | None:
    """Return the run of batches that continues the log from ``snapshot_end``; None if there is none. Raises
    MetadataLost."""
    run = log_survey.run_with(snapshot_end)
    end = snapshot_end if run is None else run.end
    later_runs = [other for other in log_survey.runs if other.start >= end and other is not run]
    if run is None and log_survey.bases and log_survey.bases[0] > snapshot_end:
        raise MetadataLost(
            f"it begins at offset {log_survey.bases[0]}, and there is no snapshot of the records before that. "
            f"`milena metadata repair {folder} --from FOLDER` copies one from a broker's copy (its "
            "__cluster_metadata-0 folder)"
        )
    damage = log_survey.damage_from(end)
    torn = damage is None or damage.torn
    if (later_runs and not torn) or end < committed or (damage is not None and damage.misplaced and not torn):
        raise MetadataLost(_explained(log_survey, folder, end, later_runs, committed))
    return run


def _explained(log_survey: Survey, folder: str, end: Offset, later_runs: list[Run], committed: Offset) -> str:
    damage = log_survey.damage_from(end)
    where = "" if damage is None else f" ({damage.path} at byte {damage.position}: {damage.reason})"
    if later_runs:
        records = sum(run.end - run.start for run in later_runs)
        last = later_runs[-1].end - 1
        lost = (
            f"the offsets {end} to {later_runs[0].start - 1} are lost{where}, followed by {records} "
            f"intact ones up to {last}"
        )
    elif end >= committed:
        lost = f"it ends at offset {end}{where}, followed by an intact batch"
    else:
        lost = f"it ends at offset {end}{where}, though the records before {committed} were committed"
    return (
        f"{lost}. This controller does not start without them. `milena metadata repair {folder} --from FOLDER` copies "
        f"them from a broker's copy (its __cluster_metadata-0 folder); "
        f"`milena metadata repair {folder} --cut` discards everything from offset {end} on"
    )
