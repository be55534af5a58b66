"""Consumer groups by Kafka's protocol."""

from __future__ import annotations

from typing import Final

from milena.client.admin import GroupMember, describe_group, group_listings, group_offsets
from milena.client.cluster import Cluster
from milena.client.membership import find_coordinator
from milena.console.model import Json, Model
from milena.node.links.outgoing import ChannelError
from milena.protocol.errors import KafkaError
from milena.protocol.records.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from milena.protocol.schemas.undecodable import DecodeError

MOST_DESCRIBED: Final = 100
"""Groups with members and offsets; of further ones only the state is shown."""


async def read_groups(client: Cluster, model: Model) -> None:
    """Enter the groups of all brokers into the model. If the cluster does not answer, the former ones remain."""
    try:
        listed = await group_listings(client)
    except (KafkaError, ChannelError):
        return
    for number, (name, listing) in enumerate(listed.items()):
        group: Json = {
            "state": listing.state, "type": listing.kind or "classic", "protocol": "", "coordinator": None,
            "members": [], "offsets": {},
        }  # fmt: skip
        if number < MOST_DESCRIBED:
            try:
                group |= await _described(client, name)
            except (KafkaError, ChannelError):
                group |= {key: value for key, value in model.groups.get(name, {}).items() if key != "state"}
        model.set_group(name, group)
    for name in [name for name in model.groups if name not in listed]:
        model.set_group(name, None)


async def _described(client: Cluster, name: str) -> Json:
    """Raises KafkaError, ChannelError."""
    view = await describe_group(client, name)
    host, port = await find_coordinator(client, name)
    offsets: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in (await group_offsets(client, name)).items():
        offsets.setdefault(topic, {})[str(partition)] = offset
    return {
        "state": view.state,
        "protocol": view.protocol,
        "coordinator": f"{host}:{port}",
        "members": [_member(member, view.protocol_type) for member in view.members],
        "offsets": offsets,
    }


def _member(member: GroupMember, protocol_type: str) -> Json:
    assigned: dict[str, list[int]] = {}
    if protocol_type == PROTOCOL_TYPE and member.assignment:
        try:
            for topic in decode_assignment(member.assignment).assigned_partitions:
                assigned[topic.topic] = list(topic.partitions)
        except DecodeError:  # an assignor may put anything there
            pass
    return {"id": member.member_id, "client": member.client_id, "host": member.client_host, "assigned": assigned}
