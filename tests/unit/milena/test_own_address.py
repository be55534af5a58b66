"""A broker checks that it can connect to the address that it advertises to other brokers, not to those for clients."""

from __future__ import annotations

import asyncio

from milena.commands.serving import fault_of, inter_broker_address
from milena.config.listeners import Endpoint
from milena.config.node_config import NodeConfig

TWO = {
    "listeners": "INSIDE://:9092,OUTSIDE://:19092",
    "advertised_listeners": "INSIDE://broker:9092,OUTSIDE://example.org:9092",
    "listener_security_protocol_map": "CONTROLLER:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    "inter_broker_listener_name": "INSIDE",
}


def test_of_several_listeners_the_inter_broker_listener_is_checked() -> None:
    found = inter_broker_address(NodeConfig.of(**TWO))
    assert found is not None and (found.host, found.port) == ("broker", 9092)


def test_a_single_listener_is_not_checked_since_it_may_be_for_external_clients_only() -> None:
    assert (
        inter_broker_address(NodeConfig.of(listeners="PLAINTEXT://:9092", advertised_listeners="PLAINTEXT://h:1"))
        is None
    )


def test_an_advertised_listener_without_a_host_is_not_checked() -> None:
    assert inter_broker_address(NodeConfig.of(**TWO | {"advertised_listeners": "INSIDE://:9092,OUTSIDE://h:1"})) is None


async def test_an_error_is_returned_only_if_no_process_listens_at_the_address() -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    endpoint = Endpoint("INSIDE", "127.0.0.1", port, "PLAINTEXT")
    assert await fault_of(endpoint, 0) is None
    server.close()
    await server.wait_closed()
    said = await fault_of(endpoint, 0)
    assert said is not None and f"INSIDE://127.0.0.1:{port}" in said and "within 0 s" in said
