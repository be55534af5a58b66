"""A broker reaches each other broker over one connection, at the address that the metadata has now."""

from __future__ import annotations

from typing import Any

import pytest

from milena.node.api import RequestContext
from milena.node.links.broker_links import BrokerLinks
from milena.node.links.outgoing import ChannelError, Unreachable
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import NodeId
from milena.runtime.process import real_runtime
from tests.unit.node.peers import Running, running, until

ONE, TWO = NodeId(1), NodeId(2)


class Addresses:
    """What the metadata says."""

    def __init__(self, **servers: Running) -> None:
        self.known = {NodeId(int(name[1:])): server.server.bound["PLAINTEXT"] for name, server in servers.items()}

    def __call__(self, broker: NodeId) -> tuple[str, int] | None:
        return self.known.get(broker)


def links_by(addresses: Addresses) -> BrokerLinks:
    return BrokerLinks(real_runtime(), addresses, "links", request_timeout=5.0)


async def groups_of(links: BrokerLinks, broker: NodeId) -> list[str]:
    response = await links.request(broker, ApiKey.LIST_GROUPS, states_filter=[])
    return [group.group_id for group in response.groups]


def answer(peer: Running, group: str) -> list[str | None]:
    """Let ``peer`` name one group. Returns the client ids that have asked it."""
    clients: list[str | None] = []

    def cold(ctx: RequestContext, request: Any) -> dict[str, Any]:
        clients.append(ctx.client_id)
        return {"groups": [{"group_id": group}]}

    peer.node.cold = cold
    return clients


async def test_each_broker_gets_the_requests_that_are_sent_to_it() -> None:
    async with running() as one, running() as two:
        links = links_by(Addresses(n1=one, n2=two))
        asked = answer(one, "of one"), answer(two, "of two")
        assert await groups_of(links, TWO) == ["of two"]
        assert await groups_of(links, ONE) == ["of one"]
        assert await groups_of(links, ONE) == ["of one"]
        assert asked == (["links"] * 2, ["links"])
        links.close()


async def test_a_broker_with_another_address_is_reached_there() -> None:
    async with running() as old, running() as new:
        addresses = Addresses(n1=old)
        links = links_by(addresses)
        answer(old, "old")
        answer(new, "new")
        assert await groups_of(links, ONE) == ["old"]
        addresses.known[ONE] = new.server.bound["PLAINTEXT"]
        assert await groups_of(links, ONE) == ["new"]
        links.close()


async def test_a_broker_without_an_address_is_unreachable() -> None:
    links = links_by(Addresses())
    with pytest.raises(Unreachable, match="no address of broker 1"):
        await groups_of(links, ONE)


async def test_the_version_is_the_highest_that_the_peer_serves() -> None:
    async with running() as peer:
        links = links_by(Addresses(n1=peer))
        assert await links.version(ONE, ApiKey.LIST_GROUPS) == 4
        with pytest.raises(KafkaError) as caught:
            await links.version(ONE, ApiKey.END_TXN)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
        links.close()


async def test_closed_links_send_nothing() -> None:
    async with running() as peer:
        links = links_by(Addresses(n1=peer))
        asked = answer(peer, "group")
        await groups_of(links, ONE)
        links.close()
        with pytest.raises(ChannelError, match="stopping"):
            await groups_of(links, ONE)
        assert asked == ["links"]


async def test_a_broker_that_is_unregistered_loses_its_connection() -> None:
    async with running() as one, running() as two:
        links = links_by(Addresses(n1=one, n2=two))
        await groups_of(links, ONE)
        await groups_of(links, TWO)
        links.keep_only(lambda broker: broker == TWO)
        await until(lambda: not list(one.server.connections()))
        assert len(list(two.server.connections())) == 1
        links.close()
