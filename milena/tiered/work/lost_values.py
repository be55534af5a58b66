"""A leader's search for records that were removed because of later values which an unclean election has truncated
(``tiered.segments.lost_values``). The loss cannot be repaired; it is logged and counted."""

from __future__ import annotations

from collections.abc import Sequence

from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.segments.lost_values import LostValues, lost_values


class LostValuesSeen:
    """The result of one leader's last search. It is computed again only if the metadata or the log's epochs have
    changed."""

    __slots__ = ("_basis", "_found")

    def __init__(self) -> None:
        self._basis: tuple[object, ...] = ()
        self._found: Sequence[LostValues] = ()

    def look(self, cache: RemoteLogMetadataCache, log: UnifiedLog) -> tuple[int, Sequence[LostValues]]:
        """Return the number of ranges, and those that are new since the last call."""
        if not cache.cleanings:
            self._found = ()
            return 0, ()
        epochs = tuple(log.epochs.entries)
        basis = (cache, cache.changes, epochs)
        if basis == self._basis:
            return len(self._found), ()
        self._basis, before = basis, frozenset(self._found)
        self._found = lost_values(
            cache.segments(), cache.cleanings.count, leader_epochs=epochs, log_end=log.log_end_offset
        )
        return len(self._found), [one for one in self._found if one not in before]
