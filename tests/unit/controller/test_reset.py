"""A reset leaves the metadata of a new cluster, whatever was stored."""

from __future__ import annotations

from uuid import UUID

from milena.controller.commands.reset import reset
from milena.node.metadata.image import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from milena.protocol.metadata_records import ConfigRecord, access
from tests.unit.controller.cluster import Cluster


def config(kind: int, name: str, key: str) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=name, name=key, value="1")


def test_everything_that_clients_have_stored_is_removed_and_the_brokers_stay() -> None:
    new, used = Cluster(3), Cluster(3)
    topics = {used.create_topic(name, partitions=4, replicas=3): name for name in ("orders", "__consumer_offsets")}
    entity = (access.QuotaEntity(entity_type="user", entity_name=None),)
    used.write(
        [
            config(TOPIC_RESOURCE, "orders", "retention.ms"),
            config(BROKER_RESOURCE, "", "log.cleaner.threads"),
            config(BROKER_RESOURCE, "1", "log.cleaner.threads"),
            config(GROUP_RESOURCE, "readers", "consumer.session.timeout.ms"),
            config(CLIENT_METRICS_RESOURCE, "subscription", "interval.ms"),
            access.ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=5.0, remove=False),
            access.UserScramCredentialRecord(
                name="ann", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"k", iterations=4096
            ),
            access.DelegationTokenRecord(
                owner="ann",
                requester="ann",
                renewers=(),
                issue_timestamp=1,
                max_timestamp=2,
                expiration_timestamp=2,
                token_id="token",
            ),
            access.AccessControlEntryRecord(
                id=UUID(int=7),
                resource_type=2,
                resource_name="orders",
                pattern_type=3,
                principal="User:ann",
                host="*",
                operation=3,
                permission_type=3,
            ),
        ]
    )

    assert used.commit(reset(used.state)) == topics

    image, empty = used.state.image, new.state.image
    assert (image.topics, image.topics_by_id, image.opaque) == ({}, {}, {})
    assert not any(image.configs.values())
    assert (image.brokers, image.features) == (empty.brokers, empty.features)
    assert used.state.index.leaderless_count == 0


def test_a_new_cluster_is_reset_without_a_record() -> None:
    assert not reset(Cluster(1).state).records
