"""Removes all topics, dynamic configurations, quotas and credentials: the metadata of a new cluster, for tests.

Registrations of nodes, feature levels and the next producer id stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from milena.controller.state.result import Result
from milena.controller.state.state import ControllerState
from milena.node.metadata.image import TOPIC_RESOURCE, MetadataImage
from milena.protocol.metadata_records import ConfigRecord, MetadataRecord, RemoveTopicRecord, access


def reset(state: ControllerState) -> Result[dict[UUID, str]]:
    """Return the records that remove everything, and the removed topics: names by id. The records need not form one
    batch."""
    image = state.image
    topics = {topic.id: topic.name for topic in image.topics.values()}
    records: list[MetadataRecord] = [RemoveTopicRecord(topic_id=topic_id) for topic_id in topics]
    records += _config_removals(image)
    records += _access_removals(image)
    return Result(records, topics, atomic=False)


def _config_removals(image: MetadataImage) -> Iterator[MetadataRecord]:
    """The configuration of a topic goes with the topic."""
    for (kind, name), values in image.configs.items():
        if kind != TOPIC_RESOURCE:
            for key in values:
                yield ConfigRecord(resource_type=kind, resource_name=name, name=key, value=None)


def _access_removals(image: MetadataImage) -> Iterator[MetadataRecord]:
    for record in image.opaque.values():
        match record:
            case access.ClientQuotaRecord():
                yield access.ClientQuotaRecord(entity=record.entity, key=record.key, value=0.0, remove=True)
            case access.UserScramCredentialRecord():
                yield access.RemoveUserScramCredentialRecord(name=record.name, mechanism=record.mechanism)
            case access.DelegationTokenRecord():
                yield access.RemoveDelegationTokenRecord(token_id=record.token_id)
            case access.AccessControlEntryRecord():
                yield access.RemoveAccessControlEntryRecord(id=record.id)
