"""The state on which the controller's commands decide: the image at the log end, and what is derived from it.

Records change it as soon as they are appended, before they are committed: the next command sees the effect of the last
one. Responses wait for the commit. Only ``replay`` applies records; heartbeats change only the sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from milena.config.node_config import NodeConfig
from milena.config.topic_config import effective_value
from milena.controller.state.partition_index import PartitionIndex
from milena.controller.state.sessions import Sessions
from milena.node.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, BrokerImage, Delta, MetadataImage
from milena.node.metadata.replay import Replayer
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.features import DIRECTORY_ASSIGNMENT, ELR_VERSION, NO_EPOCH_BUMP_ON_ISR_SHRINK
from milena.protocol.metadata_records import MetadataRecord, RegisterBrokerRecord, UnregisterBrokerRecord
from milena.protocol.types import MIGRATING_DIR, UNASSIGNED_DIR, LeaderEpoch, NodeId, Offset

_START: Final = Offset(0)


@dataclass(slots=True)
class ControllerState:
    """Image, partition index and broker sessions. ``next_offset`` is the offset of the next record."""

    cluster_id: str
    static_config: NodeConfig
    sessions: Sessions
    image: MetadataImage = field(default_factory=MetadataImage)
    index: PartitionIndex = field(default_factory=PartitionIndex)
    next_offset: Offset = _START
    registered_at: dict[int, Offset] = field(default_factory=dict)
    """The offset of each broker's last RegisterBroker record, which is its broker epoch or later."""
    features_changed_at: Offset = _START
    """Offset of the last batch that changed a feature's level."""
    config: NodeConfig = field(init=False)
    """The node's static configuration with the dynamic configuration of the image applied."""
    _replayer: Replayer = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.load(self.image)

    @property
    def in_transaction(self) -> bool:
        """Whether the log ends within a metadata transaction."""
        return self._replayer.in_transaction

    def load(self, image: MetadataImage) -> None:
        """Start from the image of a snapshot."""
        self.image = image
        self._replayer = Replayer(image)
        self.index = PartitionIndex.of(image)
        self.next_offset = Offset(image.offset + 1)
        self.registered_at = dict.fromkeys(image.brokers, image.offset)
        self.features_changed_at = image.offset
        self._update_config()

    def replay(
        self, batch: Sequence[MetadataRecord], *, base_offset: Offset, epoch: LeaderEpoch, timestamp_ms: int
    ) -> Delta:
        """Apply one batch of records. Raises ReplayError if they contradict the image."""
        for position, record in enumerate(batch):
            offset = Offset(base_offset + position)
            self._replayer.replay(record, offset=offset, epoch=epoch, timestamp_ms=timestamp_ms)
            match record:
                case RegisterBrokerRecord():
                    self.registered_at[record.broker_id] = offset
                    if record.broker_epoch == offset:  # a new incarnation
                        self.sessions.forget_progress(record.broker_id)
                case UnregisterBrokerRecord():
                    self.registered_at.pop(record.broker_id, None)
                    self.sessions.forget_progress(record.broker_id)
        return self._published(Offset(base_offset + len(batch)))

    def advance(self, *, last_offset: Offset, epoch: LeaderEpoch, timestamp_ms: int) -> None:
        """Advance to ``last_offset`` over a batch that does not change the image (a control record)."""
        self._replayer.advance(offset=last_offset, epoch=epoch, timestamp_ms=timestamp_ms)
        self.next_offset = Offset(last_offset + 1)

    def _published(self, next_offset: Offset) -> Delta:
        self.next_offset = next_offset
        delta = self._replayer.take_delta()
        if delta.features:
            self.features_changed_at = Offset(next_offset - 1)
        self.index.refresh(self.image, delta)
        if any(resource == BROKER_RESOURCE for resource, _ in delta.configs):
            self._update_config()
        return delta

    def _update_config(self) -> None:
        self.config = self.static_config.with_dynamic(
            default=self.image.config(BROKER_RESOURCE, ""),
            broker=self.image.config(BROKER_RESOURCE, str(self.static_config.node_id)),
        )

    def checked_broker(self, broker_id: int, broker_epoch: int) -> BrokerImage:
        """Return the registration of the broker that sent a request. Raises KafkaError(STALE_BROKER_EPOCH)."""
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker_id} is not registered.")
        if broker.epoch != broker_epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Broker {broker_id} is registered with epoch {broker.epoch}, not {broker_epoch}.",
            )
        return broker

    @property
    def elr_enabled(self) -> bool:
        return self.image.features.get(ELR_VERSION, 0) > 0

    @property
    def directories_supported(self) -> bool:
        return self.image.metadata_version >= DIRECTORY_ASSIGNMENT

    @property
    def bump_on_isr_shrink(self) -> bool:
        return self.image.metadata_version < NO_EPOCH_BUMP_ON_ISR_SHRINK

    def default_directory(self, broker_id: NodeId) -> UUID:
        """Return the directory of a new replica: unassigned if the broker has several, because the broker then
        chooses."""
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            return UNASSIGNED_DIR
        if not broker.log_dirs:
            return MIGRATING_DIR
        return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED_DIR

    def min_isr(self, topic: str, replicas: int) -> int:
        """Return the effective ``min.insync.replicas``: at most the number of replicas."""
        value = effective_value(self.config, self.image.config(TOPIC_RESOURCE, topic), "min.insync.replicas")
        assert isinstance(value, int)
        return min(value, replicas)

    def unclean_elections(self, topic: str) -> bool:
        overrides = self.image.config(TOPIC_RESOURCE, topic)
        return effective_value(self.config, overrides, "unclean.leader.election.enable") is True
