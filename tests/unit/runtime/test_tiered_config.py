"""Keys of tiered storage: what a broker and a topic may be configured with (docs/kafka-semantics.md: Enabling and
disabling)."""

from __future__ import annotations

from pathlib import Path

import pytest

from milena.config.node_config import NodeConfig
from milena.config.sources import plain
from milena.config.topic_config import TopicConfig, validate_topic_config
from milena.config.values import ConfigError

TABLE = Path(__file__).parent / "kafka-4.4-tiered-topics.tsv"


def test_topics_are_taken_and_refused_with_kafkas_words() -> None:
    rows = [line.split("\t") for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    for system, was, text, expected in rows:
        node = NodeConfig.of(remote_log_storage_system_enable=system)
        overrides = {name: value for name, _, value in (pair.partition("=") for pair in text.split(";"))}
        said = "ok"
        try:
            validate_topic_config(node, overrides, before={} if was == "-" else {"remote.storage.enable": was})
        except ConfigError as error:
            said = str(error)
        assert (system, was, text, said) == (system, was, text, expected)


BOTH = {"remote.storage.enable": "true", "cleanup.policy": "compact"}


def test_a_tiered_topic_may_be_compacted_where_that_is_enabled_if_it_says_so_itself() -> None:
    node = NodeConfig.of(remote_log_storage_system_enable=True, remote_log_compaction_enable=True)
    for policy in ("compact", "compact,delete", "delete, compact"):
        validate_topic_config(node, {**BOTH, "cleanup.policy": policy})
        assert TopicConfig.effective(node, {**BOTH, "cleanup.policy": policy}).compacted
    by_default = NodeConfig.of(
        remote_log_storage_system_enable=True, remote_log_compaction_enable=True, log_cleanup_policy="compact"
    )
    with pytest.raises(ConfigError, match=r"only supports topics with cleanup.policy=delete"):
        validate_topic_config(by_default, {"remote.storage.enable": "true"})
    assert not TopicConfig.effective(by_default, {"remote.storage.enable": "true"}).compacted
    no_tier = NodeConfig.of(remote_log_compaction_enable=True)
    with pytest.raises(ConfigError, match=r"Tiered Storage functionality is disabled"):
        validate_topic_config(no_tier, BOTH)


def test_where_compaction_of_the_tier_was_switched_off_topics_that_have_it_may_be_changed() -> None:
    node = NodeConfig.of(remote_log_storage_system_enable=True)
    validate_topic_config(node, {**BOTH, "retention.ms": "5", "local.retention.ms": "5"}, before=BOTH)
    with pytest.raises(ConfigError, match=r"only supports topics with cleanup.policy=delete"):
        validate_topic_config(node, BOTH, before={"remote.storage.enable": "true"})
    with pytest.raises(ConfigError, match=r"only supports topics with cleanup.policy=delete"):
        validate_topic_config(node, BOTH, before={"cleanup.policy": "compact"})
    assert not TopicConfig.effective(node, BOTH).compacted


def test_what_topics_have_by_default_must_be_possible_for_a_tiered_one() -> None:
    NodeConfig.of(log_retention_ms=100, log_local_retention_ms=200)
    with pytest.raises(ConfigError, match=r"Invalid value 200 for configuration local\.retention\.ms"):
        NodeConfig.of(remote_log_storage_system_enable=True, log_retention_ms=100, log_local_retention_ms=200)


def test_the_local_part_lives_as_long_as_the_log_where_nothing_else_is_said() -> None:
    node = NodeConfig.of(log_retention_ms=100, log_retention_bytes=7)
    like_the_log = TopicConfig.effective(node, {})
    assert (like_the_log.local_ms, like_the_log.local_bytes) == (100, 7)
    own = TopicConfig.effective(node, {"local.retention.ms": "5", "local.retention.bytes": "-1"})
    assert (own.local_ms, own.local_bytes) == (5, -1)


def test_the_keys_of_plug_ins_are_free_under_any_prefix() -> None:
    keys = {
        **NodeConfig.of().originals,
        "remote.log.storage.manager.impl.prefix": "tier.",
        "tier.dir": "/tier",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "5",
    }
    node = NodeConfig(plain(keys))
    assert node.warnings == ()
    assert node.under(node.get_str("remote.log.storage.manager.impl.prefix")) == {"dir": "/tier"}
    assert node.under("rlmm.config.") == {"remote.log.metadata.topic.num.partitions": "5"}
    with pytest.raises(ConfigError, match=r"unknown configuration key 'tier\.dir'"):
        NodeConfig(plain({name: text for name, text in keys.items() if "impl" not in name}))
