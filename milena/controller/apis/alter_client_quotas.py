"""AlterClientQuotas (key 49), versions 0-1: quotas of users, client ids and addresses are stored, not enforced.
KIP-546.

Differs from Kafka: an address must be an IP address; Kafka also accepts a host name that it can resolve.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from milena.controller.commands.quotas import Change, alter
from milena.node.api import Reply, RequestContext
from milena.node.metadata.access_views import Entity, entity_of, failed_entries
from milena.protocol.errors import KafkaError

if TYPE_CHECKING:
    from milena.controller.state.result import Committing
    from milena.protocol.apis import AlterClientQuotasRequest, AlterClientQuotasResponseFields, RequestEntryData


def handle(
    node: Committing, ctx: RequestContext, request: AlterClientQuotasRequest
) -> Reply[AlterClientQuotasResponseFields]:
    result = alter(node.state, [_change(entry) for entry in request.entries])
    if request.validate_only:
        result = result.without_records()
    return node.commit(result, _answer)


def failed(
    ctx: RequestContext, request: AlterClientQuotasRequest, error: KafkaError
) -> AlterClientQuotasResponseFields:
    return failed_entries(request, error)


def _change(entry: RequestEntryData) -> Change:
    values: dict[str, float | None] = {}
    repeated = None
    for op in entry.ops:
        if op.key in values:
            repeated = op.key
        values[op.key] = None if op.remove else op.value
    return Change(entity_of({part.entity_type: part.entity_name for part in entry.entity}), values, repeated)


def _answer(outcomes: Mapping[Entity, KafkaError | None]) -> AlterClientQuotasResponseFields:
    return {
        "entries": [
            {
                "error_code": int(error.code) if error else 0,
                "error_message": error.text if error else None,
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            }
            for entity, error in outcomes.items()
        ]
    }
