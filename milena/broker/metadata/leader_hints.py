"""Who leads instead: what Produce and Fetch tell a client that came to the wrong broker (KIP-951)."""

from __future__ import annotations

from uuid import UUID

from milena.node.metadata.image import MetadataImage
from milena.protocol.requests.leaders import CurrentLeader, NodeEndpoint


class LeaderHints:
    """Collects the leaders named in one answer, and then their endpoints."""

    def __init__(self, image: MetadataImage, listener: str) -> None:
        self._image = image
        self._listener = listener
        self._named: dict[int, None] = {}

    def leader(self, name: str | None, topic_id: UUID | None, index: int) -> CurrentLeader | None:
        """The leader that the metadata knows, by topic id if there is one; None if there is no partition."""
        if topic_id is not None:
            partition = self._image.partition_by_id(topic_id, index)
        else:
            partition = self._image.partition(name or "", index)
        if partition is None:
            return None
        self._named[partition.leader] = None
        return CurrentLeader(partition.leader, partition.leader_epoch)

    def endpoints(self) -> tuple[NodeEndpoint, ...]:
        """Where the leaders named so far are reached, through the listener of the request."""
        found = []
        for node in self._named:
            broker = self._image.brokers.get(node)
            endpoint = broker.endpoint(self._listener) if broker is not None else None
            if broker is not None and endpoint is not None:
                found.append(NodeEndpoint(node, endpoint.host, endpoint.port, broker.rack))
        return tuple(found)
