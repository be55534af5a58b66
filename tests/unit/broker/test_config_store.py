"""The effective configuration of a topic that is tiered and compacted."""

from __future__ import annotations

import pytest

from milena.broker.hosting.config_store import ConfigStore
from milena.broker.replica.partitions import PartitionSet
from milena.config.node_config import NodeConfig
from milena.node.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage

BOTH = {"remote.storage.enable": "true", "cleanup.policy": "compact"}
BY_DEFAULT = {"remote.storage.enable": "true"}


FORMER = "remote.log.compaction.work.orders.enable"


def store(values: dict[str, str], **node: object) -> ConfigStore:
    image = MetadataImage()
    image.configs[TOPIC_RESOURCE, "t"] = values
    config = NodeConfig.of(remote_log_storage_system_enable=True, **node)
    return ConfigStore(config, lambda: image, PartitionSet(lambda: image))


@pytest.mark.parametrize(
    ("values", "node", "reason"),
    [
        (BOTH, {}, "remote.log.compaction.enable is false on this broker"),
        (
            BY_DEFAULT,
            {"log_cleanup_policy": "compact", "remote_log_compaction_enable": True},
            "the policy is a default, not the topic's own",
        ),
    ],
    ids=["switched off here", "by default"],
)
def test_an_uncompacted_tiered_topic_stays_in_the_tier_and_is_logged_once(
    capsys: pytest.CaptureFixture[str], values: dict[str, str], node: dict[str, object], reason: str
) -> None:
    configs = store(values, **node)
    for _ in range(2):
        config = configs.topic("t")
        assert config.remote_storage_enable and not config.compacted
    assert configs.is_uncompacted("t")
    said = capsys.readouterr()
    assert (said.out + said.err).count(reason) == 1


def test_a_tiered_topic_is_compacted_if_that_is_enabled() -> None:
    configs = store(BOTH, remote_log_compaction_enable=True)
    assert configs.topic("t").compacted and configs.topic("t").remote_storage_enable
    assert not configs.is_uncompacted("t")


def test_a_removed_config_key_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    image = MetadataImage()
    image.configs[BROKER_RESOURCE, ""] = {FORMER: "true", "log.retention.ms": "5000"}
    image.configs[BROKER_RESOURCE, "1"] = {FORMER: "false"}
    configs = ConfigStore(NodeConfig.of(), lambda: image, PartitionSet(lambda: image))
    for _ in range(2):
        configs.renew()
    assert configs.get_int("log.retention.ms") == 5000
    said = capsys.readouterr()
    assert (said.out + said.err).count(FORMER) == 1
