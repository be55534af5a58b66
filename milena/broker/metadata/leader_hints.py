"""The current leaders in error responses of Produce and Fetch, so that clients need no Metadata request (KIP-951)."""

from __future__ import annotations

from uuid import UUID

from milena.node.metadata.image import MetadataImage
from milena.protocol.requests.leaders import CurrentLeader, NodeEndpoint


class LeaderHints:
    """Collects the leaders of the partitions in one response, and then their endpoints."""

    def __init__(self, image: MetadataImage, listener: str) -> None:
        self._image = image
        self._listener = listener
        self._leaders: dict[int, None] = {}

    def leader(self, name: str | None, topic_id: UUID | None, index: int) -> CurrentLeader | None:
        """The current leader of a partition, looked up by topic id if given, else by name; None if the partition is
        unknown. Its endpoint is included in ``endpoints``."""
        if topic_id is not None:
            partition = self._image.partition_by_id(topic_id, index)
        else:
            partition = self._image.partition(name or "", index)
        if partition is None:
            return None
        self._leaders[partition.leader] = None
        return CurrentLeader(partition.leader, partition.leader_epoch)

    def endpoints(self) -> tuple[NodeEndpoint, ...]:
        """The endpoints of the leaders returned so far, on the listener of the request."""
        endpoints = []
        for node in self._leaders:
            broker = self._image.brokers.get(node)
            endpoint = broker.endpoint(self._listener) if broker is not None else None
            if broker is not None and endpoint is not None:
                endpoints.append(NodeEndpoint(node, endpoint.host, endpoint.port, broker.rack))
        return tuple(endpoints)
