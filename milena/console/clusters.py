"""Operations on the cluster as a whole."""

from __future__ import annotations

from typing import Any

from anyio import to_thread
from fastapi import APIRouter, HTTPException

from milena.console.context import Context, Shared
from milena.steering.reset import reset
from milena.up.layout import ClusterDir

router = APIRouter(tags=["cluster"])


def directory_of(context: Context, what: str) -> ClusterDir:
    """Return the cluster's directory. Raises HTTPException 409 if it has none."""
    if context.directory is None:
        raise HTTPException(409, f"{what} needs a cluster of `milena up`")
    return context.directory


@router.post("/api/reset")
async def reset_cluster(context: Shared) -> dict[str, Any]:
    """Remove topics, groups, dynamic configurations, quotas and faults, and start nodes that are down. Ports stay."""
    await to_thread.run_sync(reset, directory_of(context, "a reset"))
    context.model.feed.add("action", "reset")
    context.watch.soon()
    return {"ok": {}}
