"""The tier of a seeded cluster: the brokers' configuration, and the tiered topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from milena.client import admin
from milena.runtime.randomness import Randomness
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC
from milena.tiered.store.tier_config import LOCAL

FOLDER: Final = "/tier"
METADATA_PARTITIONS: Final = 2
TIERED: Final = "remote.storage.enable"
SETTINGS: Final[Mapping[str, object]] = {
    "remote_log_storage_system_enable": True,
    "remote_log_storage_manager_class_name": LOCAL,
    "rsm_config_dir": FOLDER,
    "rlmm_config_remote_log_metadata_topic_num_partitions": METADATA_PARTITIONS,
    "remote_log_manager_task_interval_ms": 2000,
    "log_retention_check_interval_ms": 2000,
}
SEGMENT_BYTES: Final = (3000, 6000)
LOCAL_BYTES: Final = ("1", "1", "6000")
"""Values of ``local.retention.bytes``, chosen at random."""
UNLIMITED: Final = "-1"
RETAINED_BYTES: Final = (UNLIMITED, UNLIMITED, "20000")
"""Values of ``retention.bytes``."""


def metadata_topic(replicas: int) -> admin.NewTopic:
    """The metadata topic as brokers create it, for any number of replicas."""
    configs = {"min.insync.replicas": "2", "retention.ms": "-1"}
    return admin.NewTopic(REMOTE_LOG_METADATA_TOPIC, METADATA_PARTITIONS, replicas, configs=configs)


def with_tier(topics: Mapping[str, Mapping[str, str]], random: Randomness) -> dict[str, Mapping[str, str]]:
    """The configurations of topics with the tier enabled for some: at least one."""
    sure = random.choice(list(topics))
    found: dict[str, Mapping[str, str]] = {}
    for name, configs in topics.items():
        chosen = name == sure or random.below(2)
        found[name] = {**configs, **_tiered(random)} if chosen else configs
    return found


def _tiered(random: Randomness) -> dict[str, str]:
    return {
        TIERED: "true",
        "internal.segment.bytes": str(random.choice(SEGMENT_BYTES)),
        "local.retention.bytes": random.choice(LOCAL_BYTES),
        "retention.bytes": random.choice(RETAINED_BYTES),
        "file.delete.delay.ms": "1000",
    }
