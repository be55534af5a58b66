"""Cleans the logs of a node, one at a time, and knows which cannot be cleaned.

A round of one log is: ``begin``; ``Round.map_keys``; ``swap_in`` for each new segment; ``finish``. ``clean`` does all
of that in one go. What fails is of that log alone: a damaged one is left as it is, marked, and reported, as in Kafka,
until the node is restarted. If the disk is full, it is tried again later; if it fails, its directory goes offline.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Final, NamedTuple

from milena.protocol.errors import KafkaError
from milena.protocol.records.batch import CorruptBatch
from milena.protocol.types import Offset
from milena.runtime.disk import Disk
from milena.storage.cleaning.choice import Candidate, candidate, filthiest
from milena.storage.cleaning.cleaned_segment import OffsetOverflow
from milena.storage.cleaning.round import Figures, Round
from milena.storage.cleaning.swap import CleaningAborted, Generation, check_generation, generation_of, swap_in
from milena.storage.cleaning.work import Work, work_on
from milena.storage.files.index_file import CorruptIndex
from milena.storage.log.partition_log import PartitionLog

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class Begun(NamedTuple):
    """A round that has begun."""

    log: PartitionLog
    since: Generation
    work: Work


class Cleaner:
    """``memory`` and ``load_factor``: see ``OffsetMap``."""

    def __init__(self, disk: Disk, secret: bytes, *, memory: int, load_factor: float) -> None:
        self._disk = disk
        self._secret = secret
        self.memory = memory
        self.load_factor = load_factor
        self.uncleanable: dict[PartitionLog, str] = {}
        """Logs that cannot be cleaned, with the reason."""
        self.dirtiest_ratio = 0.0
        """The largest share of a log that was dirty when a log was last chosen."""

    def choose(self, logs: Iterable[PartitionLog], now: int) -> Candidate | None:
        """The log to clean next, of the compacted ones among ``logs``; None if none is due. ``now``: ms."""
        self.uncleanable = {log: reason for log, reason in self.uncleanable.items() if not log.retired}
        found: list[Candidate] = []
        for log in logs:
            if log.config.compacted and not log.retired and not log.context.offline and log not in self.uncleanable:
                try:
                    found.append(candidate(log, now))
                except (CorruptBatch, CorruptIndex) as error:
                    self._mark(log, str(error))
                except OSError as failure:
                    log.context.failed(failure)
        self.dirtiest_ratio = max((one.dirty_ratio for one in found), default=0.0)
        return filthiest(found)

    def begin(self, chosen: Candidate, now: int) -> Begun:
        """``now``: ms, the time by which tombstones and markers are judged. Raises OSError."""
        log = chosen.log
        work = work_on(log, chosen.found, now=now, memory=self.memory, load_factor=self.load_factor)
        return Begun(log, generation_of(log), work)

    def finish(self, begun: Begun, cleaned_to: Offset) -> None:
        """All new segments are swapped in, and the folder is synced: the checkpoint must not know of more than a power
        loss would leave. Raises CleaningAborted."""
        check_generation(begun.log, begun.since)
        begun.log.cleaned_to = cleaned_to

    def clean(self, chosen: Candidate, now: int) -> Figures | None:
        """A round in one go. Blocks. None if it came to nothing, for a reason that is reported."""
        log = chosen.log
        try:
            begun = self.begin(chosen, now)
            round_ = Round(self._disk, begun.work, self._secret)
            round_.map_keys()
            for new in round_.new_segments():
                swap_in(log, begun.since, new)
            self._disk.sync_folder(log.folder)
            self.finish(begun, round_.cleaned_to)
        except CleaningAborted as aborted:
            log.context.events.info("cleaning aborted", topic=log.topic, partition=log.partition, reason=str(aborted))
            return None
        except (CorruptBatch, CorruptIndex, OffsetOverflow) as error:
            self._mark(log, str(error))
            return None
        except (ValueError, KafkaError) as failed:  # a buffer that is too small; or the directory is offline already
            self._failed(log, failed)
            return None
        except OSError as failure:
            self._failed(log, failure)
            if failure.errno not in _FULL and not isinstance(failure, FileNotFoundError):
                log.context.failed(failure)
            return None
        return round_.figures

    def _failed(self, log: PartitionLog, error: Exception) -> None:
        log.context.events.warning("cleaning failed", topic=log.topic, partition=log.partition, reason=str(error))

    def _mark(self, log: PartitionLog, reason: str) -> None:
        self.uncleanable[log] = reason
        log.context.events.error(
            "log cannot be cleaned", topic=log.topic, partition=log.partition, folder=log.folder, reason=reason
        )
