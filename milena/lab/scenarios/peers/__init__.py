"""Test peers: nodes that behave as Kafka did before a KIP or a fix, for control experiments. Each is a node of Milena
except for one API, one response, or one of its tasks on the tier."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from milena.broker.server import Broker
from milena.config.node_config import NodeConfig
from milena.controller.server import Controller
from milena.lab.scenarios.comparing.algorithms import ALGORITHMS, CLEAN_ONLY, Algorithm
from milena.lab.scenarios.peers import tier_rules
from milena.lab.scenarios.peers.alter_partition_behind import Behind
from milena.lab.scenarios.peers.cleaning_rules import CleansEpochsAway, CleansToHighWatermark
from milena.lab.scenarios.peers.epoch_bumps import BumpsEpochs
from milena.lab.scenarios.peers.former_leaders import PushesLeadersOut
from milena.lab.scenarios.peers.hand_cleaner import HandCleaner, UnfencedHandCleaner
from milena.lab.scenarios.peers.private_epoch_ends import PRIVATE_RANGES, AsksByAlgorithm
from milena.node.api import ApiTable
from milena.protocol.api_keys import ApiKey
from milena.protocol.schemas.api_versions import ApiVersionsAnswers
from milena.protocol.schemas.registry import Role, VersionRange, advertised, served
from milena.runtime.context import Runtime

NO_EPOCHS_OF_MEMBERS: Final = 2
"""The last version of AlterPartition before KIP-903."""
PACKAGE: Final = "milena.lab.scenarios.peers"

Node = Broker | Controller
Peer = Callable[[Runtime, NodeConfig], Node]
"""Creates a test peer."""


def kip101_leader(runtime: Runtime, config: NodeConfig) -> Broker:
    """Answers OffsetForLeaderEpoch without an epoch, as KIP-101 did, and reports no divergence in fetches."""
    return _broker(
        runtime,
        config,
        {ApiKey.OFFSET_FOR_LEADER_EPOCH: "kip101_epoch_ends", ApiKey.FETCH: "fetch_without_divergence"},
    )


def metadata_epochs_leader(runtime: Runtime, config: NodeConfig) -> Broker:
    """Takes a follower's broker epoch from its own metadata, not from the fetch."""
    return _broker(runtime, config, {ApiKey.FETCH: "fetch_with_metadata_epochs"})


def alter_partition_v2_controller(
    runtime: Runtime, config: NodeConfig, *, kind: type[Controller] = Controller
) -> Controller:
    """Supports AlterPartition only up to version 2, and therefore checks no broker epochs."""
    controller = kind(runtime, config)
    offered = VersionRange(advertised(Role.CONTROLLER)[ApiKey.ALTER_PARTITION].min, NO_EPOCHS_OF_MEMBERS)
    features = controller.supported_features
    controller.api_versions = ApiVersionsAnswers(Role.CONTROLLER, features, {ApiKey.ALTER_PARTITION: offered})
    return controller


def counts_diverging_leader(runtime: Runtime, config: NodeConfig) -> Broker:
    """Counts the offset of a fetch as progress even if it responds with a divergence."""
    return _broker(runtime, config, {ApiKey.FETCH: "fetch_counting_divergence"})


def behind_controller(runtime: Runtime, config: NodeConfig, *, fences: bool = False) -> Controller:
    """Answers its first AlterPartition with the state before the last leader change."""
    modules = {key: key.name.lower() for key in served(Role.CONTROLLER)}
    modules[ApiKey.API_VERSIONS] = "milena.node.apis.api_versions"
    modules[ApiKey.ALTER_PARTITION] = f"{PACKAGE}.alter_partition_behind"
    return Behind(runtime, config, ApiTable("milena.controller.apis", modules), fences=fences)


def _asks(algorithm: Algorithm) -> Peer:
    """A broker that truncates by an algorithm of KIP-279 and answers to it, in messages of its own; the other replicas
    must do the same. It reports no divergence in fetches."""
    replaced = {ApiKey.OFFSET_FOR_LEADER_EPOCH: "private_epoch_ends", ApiKey.FETCH: "fetch_without_divergence"}
    apis = ApiTable("milena.broker.apis", _modules(replaced), ranges=PRIVATE_RANGES)
    return lambda runtime, config: AsksByAlgorithm(runtime, config, apis, algorithm)


def _broker(runtime: Runtime, config: NodeConfig, replaced: Mapping[ApiKey, str]) -> Broker:
    return Broker(runtime, config, apis=ApiTable("milena.broker.apis", _modules(replaced)))


def _modules(replaced: Mapping[ApiKey, str]) -> dict[ApiKey, str]:
    modules = {key: key.name.lower() for key in served(Role.BROKER)}
    modules[ApiKey.API_VERSIONS] = "milena.node.apis.api_versions"
    return modules | {key: f"{PACKAGE}.{name}" for key, name in replaced.items()}


def _with_rules(**rounds: tier_rules.Round | None) -> Peer:
    """A broker that runs these functions on its tier in place of the jobs of these names. None: the job is left out."""
    return lambda runtime, config: tier_rules.OtherRules(runtime, config, rounds)


PEERS: Final[Mapping[str, Peer]] = {
    "kip101": kip101_leader,
    "asks_as_kip101": _asks(ALGORITHMS["KIP-101"]),
    "asks_alternative_1": _asks(ALGORITHMS["alternative 1"]),
    "asks_alternative_2": _asks(ALGORITHMS["alternative 2"]),
    "asks_high_watermark": _asks(CLEAN_ONLY),
    "pushes_leaders_out": PushesLeadersOut,
    "metadata_epochs": metadata_epochs_leader,
    "counts_diverging": counts_diverging_leader,
    "alter_partition_v2": alter_partition_v2_controller,
    "bumps_epochs": partial(alter_partition_v2_controller, kind=BumpsEpochs),
    "behind": behind_controller,
    "behind_fences": partial(behind_controller, fences=True),
    "counts_failed_copies": _with_rules(expire=tier_rules.expire_counting_failed_copies),
    "expires_unseeded": _with_rules(copy=None, expire=tier_rules.expire_unseeded),
    "starts_after_last_listed": _with_rules(expire=tier_rules.expire_to_last_listed),
    "wants_all_epochs": _with_rules(expire=tier_rules.expire_only_of_known_epochs),
    "deletes_unfenced": _with_rules(expire=tier_rules.expire_unfenced),
    "deletes_by_own_lineage": _with_rules(expire=tier_rules.expire_by_own_lineage),
    "marks_only": _with_rules(expire=tier_rules.mark_only),
    "deletes_by_lineage": _with_rules(expire=tier_rules.delete_by_lineage_of_leader),
    "copies_unfenced": _with_rules(copy=tier_rules.copy_without_epochs),
    "cleans_epochs_away": CleansEpochsAway,
    "cleans_to_high_watermark": CleansToHighWatermark,
    "cleans": HandCleaner,
    "cleans_unfenced": UnfencedHandCleaner,
    "copies_unclipped": _with_rules(copy=tier_rules.copy_unclipped, expire=tier_rules.expire_unseeded),
}
"""Peers by their names in scenarios."""
