"""UpdateFeatures (key 57), versions 0-2: change the finalized levels of features, all or none.

v1 upgrade types and validate_only in place of allow_downgrade, v2 one error for all. KIPs: 584, 778, 1022.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milena.controller.commands.features import FeatureUpdate, Upgrade, update_features
from milena.node.api import Reply, RequestContext
from milena.protocol.errors import KafkaError
from milena.protocol.requests import messages

if TYPE_CHECKING:
    from milena.controller.state.result import Committing
    from milena.protocol.apis import (
        FeatureUpdateKey,
        UpdatableFeatureResultFields,
        UpdateFeaturesRequest,
        UpdateFeaturesResponseFields,
    )


def handle(
    node: Committing, ctx: RequestContext, request: UpdateFeaturesRequest
) -> Reply[UpdateFeaturesResponseFields]:
    updates = [FeatureUpdate(u.feature, u.max_version_level, _kind(u)) for u in request.feature_updates]
    result = update_features(node.state, updates, validate_only=messages.get(request, "validate_only", False))
    names = [update.feature for update in updates]

    def answer(_: object) -> UpdateFeaturesResponseFields:
        results: list[UpdatableFeatureResultFields] = [
            {"feature": name, "error_code": 0, "error_message": None} for name in names
        ]
        return {"error_code": 0, "error_message": None, "results": results}

    return node.commit(result, answer)


def failed(ctx: RequestContext, request: UpdateFeaturesRequest, error: KafkaError) -> UpdateFeaturesResponseFields:
    message = f"No feature was changed: {error.text}"
    return {"error_code": int(error.code), "error_message": message, "results": []}


def _kind(update: FeatureUpdateKey) -> Upgrade:
    code = messages.get(update, "upgrade_type", None)
    if code is None:
        return Upgrade.SAFE_DOWNGRADE if update.allow_downgrade else Upgrade.UPGRADE
    return Upgrade(code) if code in list(Upgrade) else Upgrade.UNKNOWN
