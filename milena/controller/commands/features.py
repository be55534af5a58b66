"""UpdateFeatures: change the finalized levels of features (KIP-584, KIP-1022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from milena.config.values import render
from milena.controller.state.result import Result
from milena.controller.state.state import ControllerState
from milena.node.metadata.image import BROKER_RESOURCE
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.features import (
    DISABLED,
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_CHANGES,
    METADATA_VERSION,
    RANGES,
    ranges,
    unmet_dependency,
)
from milena.protocol.metadata_records import ConfigRecord, FeatureLevelRecord, MetadataRecord


class Upgrade(IntEnum):
    """The kinds of change that an update may allow (Kafka's FeatureUpdate.UpgradeType)."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    feature: str
    level: int
    kind: Upgrade = Upgrade.UPGRADE


def update_features(
    state: ControllerState, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
) -> Result[None]:
    """Change all levels or none. Raises KafkaError(INVALID_UPDATE_VERSION) for the first invalid update."""
    levels = {**state.image.features, **{update.feature: update.level for update in updates}}
    records: list[MetadataRecord] = []
    for update in updates:
        _check(state, update, levels)
        if update.feature != KRAFT_VERSION:
            records.append(FeatureLevelRecord(name=update.feature, feature_level=update.level))
        if update.feature == ELR_VERSION and update.level > 0 and not state.elr_enabled:
            records = _cluster_min_isr(state) + records
    return Result(() if validate_only else records, None)


def current_level(state: ControllerState, feature: str) -> int:
    """Return the finalized level; 0 for a feature without one, and for kraft.version: the voters are static."""
    return state.image.features.get(feature, 0)


def _check(state: ControllerState, update: FeatureUpdate, levels: Mapping[str, int]) -> None:
    current = current_level(state, update.feature)
    if update.kind is Upgrade.UNKNOWN:
        raise _refused(update, "the upgrade type is unknown")
    if update.level < 0:
        raise _refused(update, "a level cannot be negative")
    _check_support(state, update)
    if update.level < current and update.kind is Upgrade.UPGRADE:
        raise _refused(update, f"its level is {current}, and the upgrade type does not allow a downgrade")
    if update.level > current and update.kind is not Upgrade.UPGRADE:
        raise _refused(update, f"its level is {current}, so this is not a downgrade")
    if update.feature == METADATA_VERSION:
        _check_metadata_downgrade(update, current)
        return
    if update.feature == KRAFT_VERSION and update.level != current:
        raise _refused(update, "the voters of this cluster are static")
    unmet = unmet_dependency(update.feature, update.level, levels)
    if unmet is not None:
        raise _refused(update, unmet)


def _check_support(state: ControllerState, update: FeatureUpdate) -> None:
    """Check that this node and every registered broker and controller support the level."""
    own = ranges(state.config.release)
    supported: dict[str, tuple[int, int]] = {"This controller": own.get(update.feature, DISABLED)}
    for broker in state.image.brokers.values():
        supported[f"Broker {broker.id}"] = broker.features.get(update.feature, DISABLED)
    for controller in state.image.controllers.values():
        if controller.id != state.config.node_id:
            supported[f"Controller {controller.id}"] = controller.features.get(update.feature, DISABLED)
    if update.feature not in RANGES:
        raise _refused(update, "no node supports it")
    for node, (lowest, highest) in supported.items():
        if not lowest <= update.level <= highest:
            what = "does not support it" if (lowest, highest) == DISABLED else f"supports {lowest} to {highest}"
            raise _refused(update, f"{node.lower() if node.startswith('This') else node} {what}")


def _check_metadata_downgrade(update: FeatureUpdate, current: int) -> None:
    lost = [level for level in METADATA_CHANGES if update.level < level <= current]
    if not lost:
        return
    if update.kind is Upgrade.UNSAFE_DOWNGRADE:
        raise _refused(update, "unsafe downgrades are not supported")
    raise _refused(update, f"metadata introduced by level {max(lost)} might be lost")


def _refused(update: FeatureUpdate, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_UPDATE_VERSION, f"Feature {update.feature} cannot be set to level {update.level}: {why}."
    )


def _cluster_min_isr(state: ControllerState) -> list[MetadataRecord]:
    """With ELR there is one cluster-wide ``min.insync.replicas``, and none for single brokers (KIP-966)."""
    key = "min.insync.replicas"
    records: list[MetadataRecord] = [
        ConfigRecord(resource_type=kind, resource_name=name, name=key, value=None)
        for (kind, name), values in state.image.configs.items()
        if kind == BROKER_RESOURCE and name and key in values
    ]
    if key not in state.image.config(BROKER_RESOURCE, ""):
        value = render(state.static_config.get(key))
        records.append(ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=key, value=value))
    return records
