"""A controller has what each of its handlers uses: mypy checks that here, as the dispatcher finds handlers by name."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from milena.controller import apis
from milena.controller.apis import (
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_quorum,
    describe_user_scram_credentials,
    elect_leaders,
    envelope,
    fetch,
    fetch_snapshot,
    incremental_alter_configs,
    list_partition_reassignments,
    unregister_broker,
    unregister_controller,
    update_features,
)
from milena.controller.server import Controller
from milena.node.api import Answer, RequestContext

HANDLERS: Final[list[Callable[[Controller, RequestContext, Any], Answer]]] = [
    allocate_producer_ids.handle,
    alter_client_quotas.handle,
    alter_configs.handle,
    alter_partition.handle,
    alter_partition_reassignments.handle,
    assign_replicas_to_dirs.handle,
    broker_heartbeat.handle,
    broker_registration.handle,
    create_partitions.handle,
    create_topics.handle,
    delete_topics.handle,
    describe_cluster.handle,
    describe_configs.handle,
    describe_quorum.handle,
    describe_user_scram_credentials.handle,
    elect_leaders.handle,
    envelope.handle,
    fetch.handle,
    fetch_snapshot.handle,
    incremental_alter_configs.handle,
    list_partition_reassignments.handle,
    unregister_broker.handle,
    unregister_controller.handle,
    update_features.handle,
]


def test_all_handlers_are_checked() -> None:
    names = {found.name for found in pkgutil.iter_modules(apis.__path__)} - {"table"}
    assert [import_module(f"{apis.__name__}.{name}").handle for name in sorted(names)] == HANDLERS
