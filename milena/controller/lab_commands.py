"""The lab commands of a controller: its metadata, brokers and partitions, and their reset."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from milena.controller.commands.reset import reset
from milena.controller.observation import Observation
from milena.node.metadata.image_digest import image_digest
from milena.protocol.uuids import to_text

if TYPE_CHECKING:
    from milena.controller.log.metadata_log import MetadataLog
    from milena.controller.state.state import ControllerState


class Inspected(Protocol):
    """The part of the node that the commands use."""

    @property
    def metadata(self) -> MetadataLog: ...
    @property
    def state(self) -> ControllerState: ...


class ControllerLabCommands:
    """The commands of one controller, as ``milena.node.serving.lab_catalog`` describes them."""

    def __init__(self, controller: Inspected) -> None:
        self._controller = controller

    def table(self) -> dict[str, Callable[..., object]]:
        return {
            "image": self.image,
            "brokers": self.brokers,
            "partitions": self.partitions,
            "reset": self.reset,
            "observe": Observation(self._controller).observe,
        }

    def image(self) -> dict[str, object]:
        image = self._controller.state.image
        return {"offset": image.offset, "epoch": image.epoch, "digest": image_digest(image)}

    def brokers(self) -> dict[str, dict[str, object]]:
        return {
            str(broker.id): {
                "epoch": broker.epoch,
                "fenced": broker.fenced,
                "in_controlled_shutdown": broker.in_controlled_shutdown,
                "rack": broker.rack,
            }
            for broker in self._controller.state.image.brokers.values()
        }

    def partitions(self, topic: str | None = None) -> dict[str, dict[str, object]]:
        topics = self._controller.state.image.topics
        if topic is not None and topic not in topics:
            raise LookupError(f"no topic {topic!r}")
        return {
            f"{topic_image.name}-{number}": {
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "partition_epoch": partition.partition_epoch,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "adding": list(partition.adding),
                "removing": list(partition.removing),
                "elr": list(partition.elr),
                "recovery_state": partition.recovery_state,
            }
            for topic_image in (topics.values() if topic is None else [topics[topic]])
            for number, partition in sorted(topic_image.partitions.items())
        }

    async def reset(self) -> dict[str, object]:
        result = reset(self._controller.state)
        await self._controller.metadata.write(result.records, atomic=result.atomic)
        return {"offset": self._controller.state.image.offset, "topics": [to_text(topic) for topic in result.response]}
