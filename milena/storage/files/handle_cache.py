"""Limits the number of files, or of memory maps, that are open at a time.

Each owner keeps its own handle, so that there is no lookup per use. The cache decides which owner must release its
handle. To release means to drop the reference: a range that is being sent keeps its file open until it is sent.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol


class HandleOwner(Protocol):
    """Holds one handle, and can open it again."""

    def release_handle(self) -> None:
        """Drop the handle. It is opened again on the next use."""
        ...


class HandleCache:
    """The owners of open handles, least recently used first. For use on the loop only."""

    __slots__ = ("_limit", "_owners")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._owners: OrderedDict[HandleOwner, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._owners)

    def opened(self, owner: HandleOwner) -> None:
        """Add ``owner``, which has opened its handle. Over the limit, the least recently used owner must release
        its."""
        self._owners[owner] = None
        if len(self._owners) > self._limit:
            self._owners.popitem(last=False)[0].release_handle()

    def used(self, owner: HandleOwner) -> None:
        """Mark ``owner`` as the most recently used."""
        self._owners.move_to_end(owner)

    def closed(self, owner: HandleOwner) -> None:
        """Remove ``owner``, which has released its handle. No effect if it is not in the cache."""
        self._owners.pop(owner, None)
