"""The tagged fields of Produce and Fetch responses about leaders (KIP-951): a partition's current leader, and the
nodes' endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from milena.protocol.schemas.primitives import Data, Reader, Writer


class CurrentLeader(NamedTuple):
    """A partition's leader and leader epoch; -1 if the responding node does not know them."""

    leader_id: int
    leader_epoch: int


class NodeEndpoint(NamedTuple):
    """The address of a node."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def encode_current_leader(leader: CurrentLeader) -> bytes:
    out = Writer()
    out.int32(leader.leader_id)
    out.int32(leader.leader_epoch)
    out.append(0)  # no tagged fields
    return bytes(out)


def decode_current_leader(content: Data) -> CurrentLeader:
    reader = Reader(content)
    leader = CurrentLeader(reader.int32(), reader.int32())
    reader.skip_tags()
    reader.expect_end()
    return leader


def encode_node_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    out = Writer()
    out.compact_array(len(endpoints))
    for node_id, host, port, rack in endpoints:
        out.int32(node_id)
        out.compact_string(host)
        out.int32(port)
        out.compact_nullable_string(rack)
        out.append(0)  # no tagged fields
    return bytes(out)


def decode_node_endpoints(content: Data) -> tuple[NodeEndpoint, ...]:
    reader = Reader(content)
    endpoints = []
    for _ in range(reader.compact_array()):
        node_id, host, port = reader.int32(), reader.compact_string(), reader.int32()
        endpoints.append(NodeEndpoint(node_id, host, port, reader.compact_nullable_string()))
        reader.skip_tags()
    reader.expect_end()
    return tuple(endpoints)
