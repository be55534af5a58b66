"""mypy checks here that a broker has what each handler uses, because the dispatcher finds handlers by name."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from milena.broker import apis
from milena.broker.apis import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_replica_log_dirs,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    end_txn,
    fetch,
    find_coordinator,
    forwarded,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from milena.broker.controller_link import config_changes
from milena.broker.server import Broker
from milena.node.api import Answer, RequestContext

HANDLERS: Final[list[Callable[[Broker, RequestContext, Any], Answer]]] = [
    add_offsets_to_txn.handle,
    add_partitions_to_txn.handle,
    alter_client_quotas.handle,
    alter_replica_log_dirs.handle,
    create_partitions.handle,
    create_topics.handle,
    delete_groups.handle,
    delete_records.handle,
    delete_topics.handle,
    describe_client_quotas.handle,
    describe_cluster.handle,
    describe_configs.handle,
    describe_groups.handle,
    describe_log_dirs.handle,
    describe_producers.handle,
    describe_topic_partitions.handle,
    describe_transactions.handle,
    describe_user_scram_credentials.handle,
    end_txn.handle,
    fetch.handle,
    find_coordinator.handle,
    forwarded.handle,
    heartbeat.handle,
    init_producer_id.handle,
    join_group.handle,
    leave_group.handle,
    list_config_resources.handle,
    list_groups.handle,
    list_offsets.handle,
    list_transactions.handle,
    metadata.handle,
    offset_commit.handle,
    offset_delete.handle,
    offset_fetch.handle,
    offset_for_leader_epoch.handle,
    produce.handle,
    sync_group.handle,
    txn_offset_commit.handle,
    write_txn_markers.handle,
]
CHANGES: Final[Callable[[Broker, RequestContext, Any], Answer]] = config_changes.handle


def test_all_handlers_are_checked() -> None:
    names = {found.name for found in pkgutil.iter_modules(apis.__path__)} - {"table"}
    assert [import_module(f"{apis.__name__}.{name}").handle for name in sorted(names)] == HANDLERS
