"""The effective configurations of this broker and of its topics, which change with the metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from milena.broker.replica.partition import Partition
from milena.broker.replica.partitions import PartitionSet
from milena.config.keys import REMOVED_FROM_MILENA
from milena.config.node_config import NodeConfig
from milena.config.tiered_rules import COMPACTION_ENABLE, ENABLE, is_tiered_and_compacted
from milena.config.topic_config import TopicConfig, effective_value
from milena.config.values import ConfigError
from milena.node.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, Delta, MetadataImage
from milena.runtime.logging import get_logger

MAX_LOGGED: Final = 10_000


class ConfigStore:
    """Combines the dynamic configuration with the static one. Topics with equal configurations share one object."""

    def __init__(self, static: NodeConfig, image: Callable[[], MetadataImage], partitions: PartitionSet) -> None:
        self.node = static
        self._image = image
        self._partitions = partitions
        self._shared: dict[tuple[tuple[str, str], ...], TopicConfig] = {}
        self._uncompacted: set[str] = set()
        """Tiered topics whose cleanup.policy has ``compact``, which is not applied."""
        self._listeners: list[Callable[[NodeConfig], None]] = []
        self._topic_listeners: list[Callable[[Partition], None]] = []
        self._removed: set[str] = set()
        """Removed config keys in the metadata that have been logged."""
        self._log = get_logger("config")

    def get_int(self, key: str) -> int:
        """The current value of a key of the broker."""
        return self.node.get_int(key)

    def on_change(self, listener: Callable[[NodeConfig], None]) -> None:
        """Call ``listener`` with the broker's new configuration whenever it changes."""
        self._listeners.append(listener)

    def on_topic_change(self, listener: Callable[[Partition], None]) -> None:
        """Call ``listener`` with each hosted partition whose topic's configuration may have changed."""
        self._topic_listeners.append(listener)

    def topic(self, name: str) -> TopicConfig:
        """A topic's effective configuration on this broker."""
        overrides = self._image().config(TOPIC_RESOURCE, name)
        key = tuple(sorted(overrides.items()))
        config = self._shared.get(key)
        if config is None:
            config = self._shared[key] = TopicConfig.effective(self.node, overrides)
        if config.remote_storage_enable and not config.compacted and self._is_to_be_compacted(overrides):
            self._log_uncompacted(name, is_tiered_and_compacted(overrides))
        else:
            self._uncompacted.discard(name)
        return config

    def is_uncompacted(self, topic: str) -> bool:
        """Whether a topic is tiered, and its cleanup.policy (its own or the default) has ``compact``, which is not
        applied."""
        return topic in self._uncompacted

    def _is_to_be_compacted(self, overrides: Mapping[str, str]) -> bool:
        policy = effective_value(self.node, overrides, "cleanup.policy")
        return isinstance(policy, tuple) and "compact" in policy

    def _log_uncompacted(self, name: str, has_own_policy: bool) -> None:
        if name not in self._uncompacted and len(self._uncompacted) < MAX_LOGGED:
            self._uncompacted.add(name)
            reason = (
                f"{COMPACTION_ENABLE} is false on this broker"
                if has_own_policy
                else "the policy is a default, not the topic's own"
            )
            self._log.error(
                "cleanup.policy=compact is not applied: the topic is in the remote tier", topic=name, reason=reason
            )

    def check_tier(self) -> None:
        """Raise ConfigError if topics use remote storage and this broker has none."""
        if not self.node.get_bool("remote.log.storage.system.enable") and any(
            kind == TOPIC_RESOURCE and values.get(ENABLE, "").lower() == "true"
            for (kind, _), values in self._image().configs.items()
        ):
            raise ConfigError(
                "You have to delete all topics with the property remote.storage.enable=true "
                "before disabling tiered storage cluster-wide"
            )

    def publish(self, delta: Delta) -> None:
        """Apply changed configurations to the broker and to open logs."""
        if delta.configs & {(BROKER_RESOURCE, ""), (BROKER_RESOURCE, str(self.node.node_id))}:
            self.renew()
        elif delta.configs:
            changed = {name for kind, name in delta.configs if kind == TOPIC_RESOURCE}
            self._update_logs(lambda name: name in changed)

    def renew(self) -> None:
        """Read the whole configuration from the image again."""
        image = self._image()
        default, own = image.config(BROKER_RESOURCE, ""), image.config(BROKER_RESOURCE, str(self.node.node_id))
        self.node = self.node.with_dynamic(default=default, broker=own)
        for key in sorted(REMOVED_FROM_MILENA.intersection((*default, *own)) - self._removed):
            self._removed.add(key)
            self._log.warning("config key was removed and has no effect", key=key)
        self._shared.clear()
        for listener in self._listeners:
            listener(self.node)
        self._update_logs(lambda _: True)

    def _update_logs(self, is_affected: Callable[[str], bool]) -> None:
        for partition in self._partitions:
            if partition.log is not None and is_affected(partition.topic):
                partition.log.update_config(self.topic(partition.topic))
                if partition.topic_id not in self._image().topics_by_id:
                    continue  # the topic was deleted, and its configuration with it
                for listener in self._topic_listeners:
                    listener(partition)
