"""Describes the state of one replica: for a lab command, and for the log if an invariant is broken."""

from __future__ import annotations

from milena.broker.replica.partition import Partition
from milena.storage.log.unified_log import UnifiedLog


def describe(partition: Partition) -> dict[str, object]:
    """Role, registration, followers, log bounds and leader epochs."""
    described: dict[str, object] = {
        "role": _role(partition),
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "isr": list(partition.isr),
        "maximal_isr": list(partition.maximal_isr),
        "isr_state": None,
        "replicas": {},
    }
    if partition.leader_state is not None:
        described |= partition.leader_state.describe()
    if partition.log is not None:
        described |= _bounds(partition.log)
    return described


def _role(partition: Partition) -> str:
    if partition.log is None:
        return "offline"
    return "leader" if partition.is_leader else "follower"


def _bounds(log: UnifiedLog) -> dict[str, object]:
    return {
        "log_start_offset": log.log_start_offset,
        "local_log_start_offset": log.local_log_start_offset,
        "high_watermark": log.high_watermark,
        "last_stable_offset": log.last_stable_offset,
        "log_end_offset": log.log_end_offset,
        "highest_offset_in_remote_storage": log.highest_offset_in_remote_storage,
        "epochs": [[entry.epoch, entry.start] for entry in log.epochs.entries],
    }
