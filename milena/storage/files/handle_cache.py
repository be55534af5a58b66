"""Bounds how many files, or maps, are open at once.

Each owner keeps its own handle, so that using it costs nothing extra; the cache only decides which owner must release
its handle. To release means to drop the reference: a range that is being sent keeps its file open until it is sent.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol


class HandleOwner(Protocol):
    """Something that holds one handle and can open it again."""

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
        """``owner`` has opened its handle; if there are too many, the least recently used one is released."""
        self._owners[owner] = None
        if len(self._owners) > self._limit:
            self._owners.popitem(last=False)[0].release_handle()

    def used(self, owner: HandleOwner) -> None:
        self._owners.move_to_end(owner)

    def closed(self, owner: HandleOwner) -> None:
        """``owner`` has no handle any more. No effect if it had none."""
        self._owners.pop(owner, None)
