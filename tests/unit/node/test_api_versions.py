"""ApiVersions over the wire: what is served, the fallback, and clients with no proper name."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from milena.node.api import ApiTable
from milena.node.metrics import Metrics
from milena.node.rules.rules import Rules
from milena.node.serving.server import Server, ServerLimits
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests import messages
from milena.protocol.schemas.api_versions import ApiVersionsAnswers
from milena.protocol.schemas.registry import Role, advertised
from milena.runtime.process import real_runtime
from tests.unit.node.peers import Client, Endpoint, FakeNode, Running


@dataclass
class Node(FakeNode):
    api_versions: ApiVersionsAnswers = field(
        default_factory=lambda: ApiVersionsAnswers(Role.BROKER, {"metadata.version": (7, 33)})
    )


@contextlib.asynccontextmanager
async def client() -> AsyncIterator[tuple[Client, Running]]:
    runtime, node, metrics = real_runtime(), Node(), Metrics()
    rules = Rules(runtime.clock)
    server = Server(
        runtime,
        node,
        node_id=1,
        role=Role.BROKER,
        endpoints=[Endpoint()],
        apis=ApiTable("milena.broker.apis", {ApiKey.API_VERSIONS: "milena.node.apis.api_versions"}),
        limits=ServerLimits(),
        metrics=metrics,
        rules=rules,
    )
    await server.start()
    running = Running(server, node, metrics, rules, [])
    found = await running.client()
    yield found, running
    await found.close()
    await server.stop()


@pytest.mark.parametrize("version", range(6))
async def test_the_registry_is_listed(version: int) -> None:
    async with client() as (peer, _):
        named = {} if version < 3 else {"client_software_name": "rdkafka", "client_software_version": "2.6.0"}
        response = await peer.ask(ApiKey.API_VERSIONS, version, **named)
        listed = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        assert listed == {int(key): tuple(versions) for key, versions in advertised(Role.BROKER).items()}
        assert listed[0] == (0, 13)


async def test_an_unknown_version_is_answered_in_version_0() -> None:
    async with client() as (peer, running):
        peer.send_raw(ApiKey.API_VERSIONS, 99, b"what a later version may have")
        _, body = await peer.receive()
        response = messages.decode_response(ApiKey.API_VERSIONS, 0, body)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(api.api_key, api.min_version, api.max_version) for api in response.api_keys] == [(18, 0, 5)]
        name = "kafka_network_requestmetrics_requestspersec_total"
        assert running.metrics.value(name, request="ApiVersions", version="unsupported") == 1


@pytest.mark.parametrize("name", ["", "-rdkafka", "rd kafka", "rdkafka."])
async def test_a_client_with_no_proper_name_is_refused_and_may_go_on(name: str) -> None:
    async with client() as (peer, _):
        response = await peer.ask(ApiKey.API_VERSIONS, 3, client_software_name=name, client_software_version="1")
        assert response.error_code == ErrorCode.INVALID_REQUEST
        response = await peer.ask(ApiKey.API_VERSIONS, 3, client_software_name="a", client_software_version="1.0-x")
        assert response.error_code == ErrorCode.NONE


async def test_trailing_bytes_are_ignored() -> None:
    async with client() as (peer, _):
        peer.send_raw(ApiKey.API_VERSIONS, 0, b"more")
        assert (await peer.receive())[0] == 0
