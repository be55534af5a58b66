"""The modules that are mutated, and the tests that must fail for each mutant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_LEADERS: Final = (
    "tests/unit/broker/test_leading.py",
    "tests/unit/broker/test_leading_edges.py",
    "tests/unit/broker/test_broken_invariants.py",
    "tests/unit/broker/test_isr_events.py",
    "tests/unit/broker/test_isr_proposals.py",
    "tests/unit/broker/test_partition.py",
    "tests/unit/broker/test_replica_state.py",
    "tests/unit/broker/test_follower_fetch.py",
    "tests/unit/broker/test_fetch.py",
)
_FOLLOWERS: Final = ("tests/unit/broker/follower",)
_CONTROLLER: Final = (
    "tests/unit/controller/test_alter_partition.py",
    "tests/unit/controller/test_elections.py",
    "tests/unit/controller/test_heartbeats.py",
    "tests/unit/controller/test_leader_elections.py",
    "tests/unit/controller/test_partition_histories.py",
    "tests/unit/controller/test_partition_change.py",
    "tests/unit/controller/test_reassignment.py",
    "tests/unit/controller/test_registration.py",
)
_LOGS: Final = (
    "tests/unit/storage/test_epoch_cache.py",
    "tests/unit/storage/test_log_model.py",
    "tests/unit/storage/test_unified_log.py",
    "tests/unit/storage/test_producers.py",
    "tests/unit/storage/test_recovery.py",
    "tests/unit/storage/test_retention.py",
    "tests/unit/storage/test_tiered_log.py",
    "tests/unit/storage/test_truncation.py",
)
_TIER: Final = tuple(
    f"tests/unit/tiered/test_{name}.py"
    for name in (
        "aux_state",
        "cleaned_tier",
        "cleaner_offsets",
        "cleaning_window",
        "cleanings",
        "copied_again",
        "copy_attempts",
        "deposed_leaders",
        "eligibility",
        "expiration",
        "fenced_work",
        "fencing",
        "lineage",
        "lost_values",
        "metadata_cache",
        "metadata_cache_edges",
        "metadata_snapshot",
        "old_and_new_nodes",
        "republished_segments",
        "retention",
        "tier_cleaning",
    )
)
_COORDINATORS: Final = (
    "tests/unit/broker/coordinators",
    "tests/unit/broker/transactions/test_coordinator.py",
    "tests/unit/broker/transactions/test_loading.py",
)
_GROUPS: Final = tuple(
    f"tests/unit/broker/groups/test_{name}.py"
    for name in (
        "apis",
        "broken_groups",
        "deleted_topic_offsets",
        "coordinator",
        "full_groups",
        "group",
        "joining",
        "loading",
        "many",
        "markers",
        "memory_is_the_log",
        "membership",
        "offsets",
        "pending",
        "races",
        "rebalance",
        "rejoining",
        "random_histories",
        "refused_joins",
        "shard",
        "shard_ends",
        "store",
        "transactional_offsets",
        "wedges",
    )
)
"""All tests of groups except slow ones and those that measure costs."""
MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "milena/broker/replica/isr.py": _LEADERS,
    "milena/broker/replica/isr_proposals.py": _LEADERS,
    "milena/broker/replica/leader_state.py": _LEADERS,
    "milena/broker/follower/fetch_states.py": _FOLLOWERS,
    "milena/broker/follower/truncation.py": _FOLLOWERS,
    "milena/controller/commands/alter_partition.py": _CONTROLLER,
    "milena/controller/rules/broker_changes.py": _CONTROLLER,
    "milena/controller/rules/leader_choice.py": _CONTROLLER,
    "milena/controller/rules/partition_change.py": _CONTROLLER,
    "milena/controller/commands/leader_elections.py": _CONTROLLER,
    "milena/storage/log/log_reads.py": (
        *_LOGS,
        "tests/unit/storage/test_deleted_transactions.py",
        "tests/unit/storage/test_log_reads.py",
        "tests/unit/storage/test_timestamps.py",
    ),
    "milena/storage/log/unified_log.py": _LOGS,
    "milena/storage/log/recovery.py": _LOGS,
    "milena/tiered/aux_state/aux_state.py": _TIER,
    "milena/tiered/metadata/metadata_cache.py": _TIER,
    "milena/tiered/segments/cleaner_offsets.py": _TIER,
    "milena/tiered/segments/cleanings.py": _TIER,
    "milena/tiered/segments/eligibility.py": _TIER,
    "milena/tiered/segments/lineage.py": _TIER,
    "milena/tiered/work/deletion.py": _TIER,
    "milena/tiered/work/deletion_withdrawal.py": _TIER,
    "milena/tiered/work/fencing.py": _TIER,
    "milena/tiered/work/former_deletions.py": _TIER,
    "milena/tiered/work/retention.py": _TIER,
    "milena/broker/coordinators/coordinator.py": (*_COORDINATORS, *_GROUPS),
    "milena/broker/coordinators/loading.py": (*_COORDINATORS, *_GROUPS),
    "milena/broker/coordinators/partition_log.py": (*_COORDINATORS, *_GROUPS),
    "milena/broker/groups/offsets.py": _GROUPS,
    "milena/broker/groups/membership.py": _GROUPS,
    "milena/broker/groups/group.py": _GROUPS,
    "milena/broker/groups/store.py": _GROUPS,
    "milena/broker/groups/loading.py": _GROUPS,
    "milena/broker/groups/joining.py": _GROUPS,
    "milena/broker/groups/rebalance.py": _GROUPS,
    "milena/broker/groups/shard.py": _GROUPS,
    "milena/broker/groups/coordinator.py": _GROUPS,
}
