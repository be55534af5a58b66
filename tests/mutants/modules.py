"""The modules that decide, and the tests that are to notice when they decide otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_GROUPS: Final = ("tests/unit/broker/groups",)
_LOGS: Final = ("tests/unit/storage/test_producers.py", "tests/unit/storage/test_partition_log.py")
MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "broker/isr.py": ("tests/unit/broker/test_leading.py",),
    "broker/isr_proposals.py": ("tests/unit/broker/test_isr_proposals.py",),
    "broker/leading.py": ("tests/unit/broker/test_leading.py", "tests/unit/broker/test_isr_events.py"),
    "broker/follower/truncation.py": ("tests/unit/broker/follower/test_truncation.py",),
    "controller/alter_partition.py": ("tests/unit/controller/test_alter_partition.py",),
    "controller/elections.py": ("tests/unit/controller/test_elections.py",),
    "controller/leader_elections.py": ("tests/unit/controller/test_leader_elections.py",),
    "storage/truncation.py": ("tests/unit/storage/test_truncation.py", "tests/unit/storage/test_tiered_log.py", *_LOGS),
    "storage/recovery.py": ("tests/unit/storage/test_recovery.py", *_LOGS),
    "storage/retention.py": ("tests/unit/storage/test_retention.py", "tests/unit/storage/test_tiered_log.py"),
    "tiered/eligibility.py": ("tests/unit/tiered/test_eligibility.py",),
    "tiered/lineage.py": ("tests/unit/tiered/test_lineage.py",),
    "tiered/retention.py": ("tests/unit/tiered/test_retention.py", "tests/unit/tiered/test_expiration.py"),
    "broker/groups/offsets_log.py": _GROUPS,
    "broker/groups/offsets.py": _GROUPS,
    "broker/groups/membership.py": _GROUPS,
    "broker/groups/group.py": _GROUPS,
    "broker/groups/store.py": _GROUPS,
    "broker/groups/joining.py": _GROUPS,
    "broker/groups/rebalance.py": _GROUPS,
    "broker/groups/shard.py": _GROUPS,
    "broker/groups/coordinator.py": _GROUPS,
}
