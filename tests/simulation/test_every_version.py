"""Every API of both kinds of node in every version that it serves: no handler fails, and each version can encode the
fields that its handler returns (with ``MILENA_STRICT_FIELDS`` a field that no version has is an error)."""

from __future__ import annotations

import contextlib
from typing import Any
from uuid import UUID

import pytest

from milena.lab.cluster import start_cluster
from milena.lab.world.world import World, simulate
from milena.node.links.outgoing import ChannelError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.schemas import structs
from milena.protocol.schemas.registry import Role, served
from tests.simulation.cases_of_apis import CASES
from tests.simulation.many_elements import fields
from tests.simulation.served_apis import TOPIC, Asker, codes
from tests.simulation.steps import create, write

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LAST = (ApiKey.UNREGISTER_BROKER, ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT)
"""APIs that are asked last, because their cases register brokers without a process."""
CONFIG: dict[str, object] = {
    "auto_create_topics_enable": False,
    "group_initial_rebalance_delay_ms": 0,
    "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 1,
    "metadata_log_max_record_bytes_between_snapshots": 2000,
}


REFUSAL = ErrorCode.NOT_CONTROLLER


def one_of_each(key: int, version: int) -> dict[str, Any]:
    """The fields of a request with one element in each array."""
    values = {"string": "x", "uuid": UUID(int=5), "bytes": b"x", "records": b"", "bool": False, "float64": 0.0}
    return dict(fields(key, version, (), 0, lambda name, kind, number: values.get(kind, 0), lambda at: at, below=True))


def test_every_api_has_a_case() -> None:
    assert set(CASES) == {key for role in Role for key in served(role)}


@pytest.mark.parametrize("role", Role)
def test_every_version_of_every_api_is_answered(role: Role) -> None:
    assert structs._STRICT, "wrong field names would pass"
    wanted = {key: set(range(at.min, at.max + 1)) for key, at in served(role).items()}

    async def run(world: World) -> dict[ApiKey, set[int]]:
        cluster = await start_cluster(world, 1, CONFIG)
        async with cluster.client() as client:
            await create(client, TOPIC, partitions=2)
            for partition in (0, 1):
                await write(client, 1, partition=partition)
            asker = Asker(cluster, client, role)
            await asker.coordinated()
            for key in sorted(wanted, key=lambda key: (key in LAST, key)):
                for version in sorted(wanted[key]):
                    await CASES[key](asker, version)
        cluster.check_alive()
        return asker.asked

    asked = simulate(run, seed=1)
    assert {key: versions & asked[key] for key, versions in wanted.items()} == wanted


@pytest.mark.parametrize("role", Role)
def test_every_version_can_be_refused_with_an_error_code(role: Role) -> None:
    """A version without a field for the error closes the connection instead. The node keeps running."""

    async def run(world: World) -> int:
        cluster = await start_cluster(world, 1, CONFIG)
        assert cluster.controller is not None
        lab_commands = cluster.brokers[1].lab_commands if role is Role.BROKER else cluster.controller.lab_commands
        refusals = 0
        async with cluster.client("refused") as client:
            asker = Asker(cluster, client, role)
            for key, at in served(role).items():
                if key == ApiKey.API_VERSIONS:
                    continue  # each connection begins with ApiVersions
                refusal = await lab_commands.call("fail", api=key.name, error=REFUSAL.name, peer="refused")
                for version in range(at.min, at.max + 1):
                    with contextlib.suppress(ChannelError):
                        refusals += REFUSAL in codes(await asker.ask(key, version, **one_of_each(key, version)))
                await lab_commands.call("release", rule=refusal["rule"])
        cluster.check_alive()
        return refusals

    assert simulate(run, seed=1) > 50
