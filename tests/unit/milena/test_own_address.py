"""A broker looks for itself where it tells other brokers that it is; what clients outside reach it cannot know."""

from __future__ import annotations

import asyncio

from milena.commands.serving import among_brokers, fault_of
from milena.config.listeners import Endpoint
from milena.config.node_config import NodeConfig

TWO = {
    "listeners": "INSIDE://:9092,OUTSIDE://:19092",
    "advertised_listeners": "INSIDE://broker:9092,OUTSIDE://example.org:9092",
    "listener_security_protocol_map": "CONTROLLER:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    "inter_broker_listener_name": "INSIDE",
}


def test_of_several_listeners_it_is_the_one_of_brokers() -> None:
    found = among_brokers(NodeConfig.of(**TWO))
    assert found is not None and (found.host, found.port) == ("broker", 9092)


def test_a_single_listener_may_be_for_clients_outside_alone() -> None:
    assert among_brokers(NodeConfig.of(listeners="PLAINTEXT://:9092", advertised_listeners="PLAINTEXT://h:1")) is None


def test_an_address_that_the_machine_names_itself_is_not_looked_for() -> None:
    assert among_brokers(NodeConfig.of(**TWO | {"advertised_listeners": "INSIDE://:9092,OUTSIDE://h:1"})) is None


async def test_it_is_found_where_somebody_listens_and_told_of_where_nobody_does() -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    endpoint = Endpoint("INSIDE", "127.0.0.1", port, "PLAINTEXT")
    assert await fault_of(endpoint, 0) is None
    server.close()
    await server.wait_closed()
    said = await fault_of(endpoint, 0)
    assert said is not None and f"INSIDE://127.0.0.1:{port}" in said and "within 0 s" in said
