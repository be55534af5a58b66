"""Operations on the cluster as a whole."""

from __future__ import annotations

import os
from typing import Any, Final

import anyio
from anyio import to_thread
from fastapi import APIRouter, HTTPException
from pydantic import field_validator

from milena.console.context import Context, Shared, Strict
from milena.steering import snapshots
from milena.steering.reset import reset
from milena.up.layout import ClusterDir

router = APIRouter(tags=["cluster"])

ONE_AT_A_TIME: Final = anyio.CapacityLimiter(1)
"""Each of these operations needs the nodes for itself."""


def directory_of(context: Context, what: str) -> ClusterDir:
    """Return the cluster's directory. Raises HTTPException 409 if it has none."""
    if context.directory is None:
        raise HTTPException(409, f"{what} needs a cluster of `milena up`")
    return context.directory


@router.post("/api/reset")
async def reset_cluster(context: Shared) -> dict[str, Any]:
    """Remove topics, groups, dynamic configurations, quotas and faults, and start nodes that are down. Ports stay."""
    await to_thread.run_sync(reset, directory_of(context, "a reset"), limiter=ONE_AT_A_TIME)
    context.model.feed.add("action", "reset")
    context.watch.soon()
    return {"ok": {}}


class Folder(Strict):
    """A folder of the machine on which the cluster runs."""

    folder: str

    @field_validator("folder")
    @classmethod
    def is_absolute(cls, folder: str) -> str:
        if not os.path.isabs(folder) or "\0" in folder:
            raise ValueError("not an absolute path")
        return folder


@router.post("/api/snapshot")
async def take_snapshot(context: Shared, snapshot: Folder) -> dict[str, Any]:
    """Write the state of the whole cluster, as it is at one moment, into a new folder."""
    await to_thread.run_sync(
        snapshots.snapshot, directory_of(context, "a snapshot"), snapshot.folder, limiter=ONE_AT_A_TIME
    )
    context.model.feed.add("action", f"snapshot in {snapshot.folder}")
    return {"ok": {}}


@router.post("/api/restore")
async def restore_snapshot(context: Shared, snapshot: Folder) -> dict[str, Any]:
    """Return to the state of a snapshot, on the same ports. Clients lose their connections."""
    await to_thread.run_sync(
        snapshots.restore, directory_of(context, "a restore"), snapshot.folder, limiter=ONE_AT_A_TIME
    )
    context.model.feed.add("action", f"restored from {snapshot.folder}")
    context.watch.soon()
    return {"ok": {}}
