"""Rules at a server: what they catch, what waits in them, and what happens when they end."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from milena.node.rules.rule_topics import request_names
from milena.node.rules.rules import is_peer, uuid_namer
from milena.node.serving.lab_commands import LabCommandError, LabCommands
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests import messages
from tests.unit.node.peers import Client, Running, running, until


def commands_of(r: Running) -> LabCommands:
    return LabCommands(r.rules, {}, ["PLAINTEXT"])


def effects_of(r: Running) -> list[bytes]:
    """The bodies of the requests that the node has handled; it answers each with ``done``."""
    effects: list[bytes] = []

    def handle(ctx: Any, body: memoryview) -> None:
        effects.append(bytes(body))
        ctx.respond([b"done"])

    r.node.raw = handle
    return effects


async def silent(client: Client) -> bool:
    """Whether the client gets nothing for a moment."""
    try:
        async with asyncio.timeout(0.05):
            return await client.reader.read(1) is None
    except TimeoutError:
        return True


def produce(client: Client, topic: str, partition: int) -> int:
    """A request that the fake node echoes."""
    data = {"name": topic, "partition_data": [{"index": partition, "records": None}]}
    return client.send(ApiKey.PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=[data])


class TestHolding:
    async def test_a_held_request_waits_with_all_that_follows_on_its_connection(self) -> None:
        async with running() as r:
            lab_commands = commands_of(r)
            rule = (await lab_commands.call("hold", api="ListGroups"))["rule"]
            held, other = await r.client(), await r.client()
            held.send(ApiKey.LIST_GROUPS, 4)
            held.send_raw(ApiKey.PRODUCE, 9, b"behind")
            await lab_commands.call("wait", rule=rule)
            other.send_raw(ApiKey.PRODUCE, 9, b"beside")
            assert (await other.receive())[1] == b"beside"
            assert await silent(held)
            assert await lab_commands.call("release", rule=rule) == {"hits": 1, "released": 1}
            assert (await held.receive())[0] == 0
            assert await held.receive() == (1, b"behind")
            for client in (held, other):
                await client.close()

    async def test_what_was_held_takes_effect_after_its_connection_has_ended(self) -> None:
        async with running() as r:
            effects: list[bytes] = []
            r.node.raw = lambda ctx, body: effects.append(bytes(body))
            lab_commands = commands_of(r)
            rule = (await lab_commands.call("hold", api="PRODUCE"))["rule"]
            client = await r.client()
            client.send_raw(ApiKey.PRODUCE, 9, b"late")
            await lab_commands.call("wait", rule=rule)
            await client.close()
            await until(lambda: not list(r.server.connections()))
            assert not effects
            await lab_commands.call("release", rule=rule)
            assert effects == [b"late"]

    async def test_a_held_answer_belongs_to_a_request_that_took_effect(self) -> None:
        async with running() as r:
            effects = effects_of(r)
            lab_commands = commands_of(r)
            rule = (await lab_commands.call("hold", api="PRODUCE", side="response", count=1))["rule"]
            client = await r.client()
            client.send_raw(ApiKey.PRODUCE, 9, b"one")
            client.send_raw(ApiKey.PRODUCE, 9, b"two")
            await lab_commands.call("wait", rule=rule)
            await until(lambda: effects == [b"one", b"two"])
            assert await silent(client), "answers keep their order"
            await lab_commands.call("release", rule=rule)
            assert [await client.receive() for _ in range(2)] == [(0, b"done"), (1, b"done")]
            await client.close()

    async def test_a_rule_that_has_ended_lets_answers_under_way_pass(self) -> None:
        async with running() as r:
            waiting: list[Any] = []
            r.node.raw = lambda ctx, body: waiting.append(ctx)
            lab_commands = commands_of(r)
            rule = (await lab_commands.call("hold", side="response"))["rule"]
            client = await r.client()
            client.send_raw(ApiKey.PRODUCE, 9)
            await until(lambda: waiting)
            assert await lab_commands.call("clear") == {"released": 0}
            waiting[0].respond([b"x"])
            assert await client.receive() == (0, b"x")
            with pytest.raises(LabCommandError, match=f"wait: there is no rule {rule}"):
                await lab_commands.call("wait", rule=rule)
            await client.close()

    async def test_a_delayed_request_is_handled_later(self) -> None:
        async with running() as r:
            lab_commands = commands_of(r)
            await lab_commands.call("delay", api="PRODUCE", ms=30)
            client = await r.client()
            begin = asyncio.get_running_loop().time()
            client.send_raw(ApiKey.PRODUCE, 9, b"x")
            assert await client.receive() == (0, b"x")
            assert asyncio.get_running_loop().time() - begin >= 0.03
            await client.close()

    async def test_a_trace_has_the_times_of_a_request_and_of_its_answer(self) -> None:
        async with running() as r:
            lab_commands = commands_of(r)
            before = r.server.monotonic()
            rule = (await lab_commands.call("trace", api="PRODUCE"))["rule"]
            held = (await lab_commands.call("hold", api="PRODUCE"))["rule"]
            client = await r.client()
            produce(client, "t", 0)
            await lab_commands.call("wait", rule=held)
            between = r.server.monotonic()
            await lab_commands.call("release", rule=held)
            await client.receive()
            (exchange,) = await lab_commands.call("traced", rule=rule)
            assert before <= exchange["at"] <= between <= exchange["answered_at"] <= r.server.monotonic()
            await client.close()

    async def test_held_requests_can_be_released_one_by_one(self) -> None:
        async with running() as r:
            lab_commands = commands_of(r)
            rule = (await lab_commands.call("hold", api="PRODUCE"))["rule"]
            clients = [await r.client() for _ in range(3)]
            for number, client in enumerate(clients, 1):
                client.send_raw(ApiKey.PRODUCE, 9, b"%d" % number)
                await lab_commands.call("wait", rule=rule, hits=number)
            assert await lab_commands.call("release", rule=rule, first=1) == {"hits": 3, "released": 1}
            assert await clients[0].receive() == (0, b"1")
            assert len((await lab_commands.call("rules"))[0]["held"]) == 2
            clients[0].send_raw(ApiKey.PRODUCE, 9, b"again")
            await lab_commands.call("wait", rule=rule, hits=4)
            assert await lab_commands.call("release", rule=rule, first=9) == {"hits": 4, "released": 3}
            assert [await client.receive() for client in clients] == [(1, b"again"), (0, b"2"), (0, b"3")]
            for client in clients:
                await client.close()

    async def test_a_stopping_server_forgets_what_is_held(self) -> None:
        async with running() as r:
            lab_commands = commands_of(r)
            rule = (await lab_commands.call("hold"))["rule"]
            client = await r.client()
            client.send_raw(ApiKey.PRODUCE, 9)
            await lab_commands.call("wait", rule=rule)
            await r.server.stop()
            assert await lab_commands.call("rules") == []
            await client.close()


class TestDuplicating:
    async def test_a_request_is_handled_twice_and_the_second_answer_is_sent(self) -> None:
        async with running() as r:
            effects: list[bytes] = []

            def handle(ctx: Any, body: memoryview) -> None:
                effects.append(bytes(body))
                body[:1] = b"!"  # a handler may write into its body
                ctx.respond([b"%d" % len(effects)])

            r.node.raw = handle
            lab_commands = commands_of(r)
            rule = (await lab_commands.call("duplicate", api="PRODUCE", count=1))["rule"]
            client = await r.client()
            client.send_raw(ApiKey.PRODUCE, 9, b"one")
            client.send_raw(ApiKey.PRODUCE, 9, b"two")
            assert [await client.receive() for _ in range(2)] == [(0, b"2"), (1, b"3")]
            assert effects == [b"one", b"one", b"two"]
            assert (await lab_commands.call("rules"))[0]["hits"] == 1
            assert await lab_commands.call("release", rule=rule) == {"hits": 1, "released": 0}
            await client.close()

    async def test_later_requests_wait_until_the_first_has_been_answered_twice(self) -> None:
        async with running() as r:
            waiting: list[Any] = []
            effects: list[bytes] = []

            def handle(ctx: Any, body: memoryview) -> None:
                effects.append(bytes(body))
                waiting.append(ctx)

            r.node.raw = handle
            await commands_of(r).call("duplicate", api="PRODUCE", count=1)
            client = await r.client()
            client.send_raw(ApiKey.PRODUCE, 9, b"one")
            client.send_raw(ApiKey.PRODUCE, 9, b"two")
            await until(lambda: effects == [b"one"])
            waiting[0].respond([b"lost"])
            await until(lambda: effects == [b"one", b"one"])
            waiting[1].respond([b"kept"])
            await until(lambda: effects == [b"one", b"one", b"two"])
            waiting[2].respond([b"next"])
            assert [await client.receive() for _ in range(2)] == [(0, b"kept"), (1, b"next")]
            await client.close()

    async def test_the_second_handling_goes_on_if_the_first_closes_the_connection(self) -> None:
        async with running() as r:
            effects: list[bytes] = []

            def handle(ctx: Any, body: memoryview) -> None:
                effects.append(bytes(body))
                ctx.disconnect("for a test")

            r.node.raw = handle
            await commands_of(r).call("duplicate", api="PRODUCE")
            client = await r.client()
            client.send_raw(ApiKey.PRODUCE, 9, b"x")
            assert await client.closed()
            assert effects == [b"x", b"x"]
            await client.close()


class TestMatching:
    async def test_a_count_bounds_what_is_caught(self) -> None:
        async with running() as r:
            await commands_of(r).call("drop", api="LIST_GROUPS", count=1)
            first, second = await r.client(), await r.client()
            first.send(ApiKey.LIST_GROUPS, 4)
            assert await silent(first)
            assert (await second.ask(ApiKey.LIST_GROUPS, 4)).groups == ()
            for client in (first, second):
                await client.close()

    async def test_topics_and_partitions_are_found_in_the_request(self) -> None:
        async with running() as r:
            lab_commands = commands_of(r)
            rule = (await lab_commands.call("hold", topic="a", partition=1))["rule"]
            client = await r.client()
            produce(client, "a", 0)
            produce(client, "b", 1)
            for number in range(2):
                assert (await client.receive())[0] == number
            produce(client, "a", 1)
            shown = await lab_commands.call("wait", rule=rule)
            assert shown == {
                "rule": rule,
                "command": "hold",
                "side": "request",
                "topic": "a",
                "partition": 1,
                "hits": 1,
                "held": [{"api": "Produce", "client_id": "test", "gone": False}],
            }
            await client.close()

    async def test_transactional_ids_are_found_in_the_request(self) -> None:
        async with running() as r:
            lab_commands = commands_of(r)
            rule = (await lab_commands.call("hold", transactional_id="tx"))["rule"]
            client = await r.client()
            for name in ("other", "tx"):
                client.send(ApiKey.PRODUCE, 9, transactional_id=name, acks=-1, timeout_ms=1000, topic_data=[])
            assert (await client.receive())[0] == 0
            assert (await lab_commands.call("wait", rule=rule))["hits"] == 1
            await client.close()

    @pytest.mark.parametrize(
        ("key", "version", "fields", "found"),
        [
            (ApiKey.OFFSET_FETCH, 8, {"groups": [{"group_id": "g", "topics": None}]}, (True, False)),
            (ApiKey.DESCRIBE_GROUPS, 5, {"groups": ["f", "g"]}, (True, False)),
            (ApiKey.DELETE_GROUPS, 2, {"groups_names": ["g"]}, (True, False)),
            (ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]}, (True, False)),
            (ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["g"]}, (False, True)),
            (ApiKey.FIND_COORDINATOR, 0, {"key": "g"}, (True, False)),
            (ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["g"]}, (False, True)),
        ],
    )
    def test_each_api_names_them_in_its_own_way(
        self, key: ApiKey, version: int, fields: dict[str, Any], found: tuple[bool, bool]
    ) -> None:
        body = messages.encode_request(key, version, **fields)
        assert request_names(key, version, body, lambda _: None, group="g") is found[0]
        assert request_names(key, version, body, lambda _: None, transactional_id="g") is found[1]

    async def test_every_third_is_caught(self) -> None:
        async with running() as r:
            lab_commands = commands_of(r)
            await lab_commands.call("fail", api="LIST_GROUPS", every=3, error="COORDINATOR_NOT_AVAILABLE")
            client = await r.client()
            codes = [(await client.ask(ApiKey.LIST_GROUPS, 4)).error_code for _ in range(7)]
            assert [bool(code) for code in codes] == [False, False, True, False, False, True, False]
            await client.close()

    async def test_equal_seeds_act_on_the_same_requests(self) -> None:
        async with running() as r:
            lab_commands = commands_of(r)
            rules = [
                (await lab_commands.call("trace", api="LIST_GROUPS", probability=0.5, seed=seed))["rule"]
                for seed in (7, 7, 8)
            ]
            client = await r.client()
            for number in range(20):
                await client.ask(ApiKey.LIST_GROUPS, 4 if number % 2 else 3)
            same, again, other = [
                [(one["version"], one["at"]) for one in await lab_commands.call("traced", rule=rule)] for rule in rules
            ]
            assert same == again
            assert same != other
            assert 0 < len(same) < 20
            assert (await lab_commands.call("rules"))[0]["seed"] == 7
            await client.close()

    async def test_a_listener_and_a_client_id_are_matched_as_a_whole(self) -> None:
        async with running() as r:
            lab_commands = commands_of(r)
            await lab_commands.call("trace", listener="PLAINTEXT")
            await lab_commands.call("trace", client_id="tes")
            await lab_commands.call("trace", client_id=(client_id := "test"))
            client = await r.client()
            await client.ask(ApiKey.LIST_GROUPS, 4)
            found = await lab_commands.call("rules")
            assert [rule["hits"] for rule in found] == [1, 0, 1], found
            assert (found[0]["listener"], found[2]["client_id"]) == ("PLAINTEXT", client_id)
            await client.close()

    @pytest.mark.parametrize(("probability", "hits"), [(0, 0), (1, 5)])
    async def test_a_probability_decides_of_each_request(self, probability: float, hits: int) -> None:
        async with running() as r:
            lab_commands = commands_of(r)
            await lab_commands.call("trace", api="LIST_GROUPS", probability=probability)
            client = await r.client()
            for _ in range(5):
                await client.ask(ApiKey.LIST_GROUPS, 4)
            (rule,) = await lab_commands.call("rules")
            assert (rule["hits"], rule["probability"]) == (hits, probability)
            await client.close()

    async def test_a_node_is_not_the_beginning_of_a_client_id(self) -> None:
        async with running() as r:
            lab_commands = commands_of(r)
            rule = (await lab_commands.call("trace", node=1))["rule"]
            client = await r.client()
            await client.ask(ApiKey.LIST_GROUPS, 4)
            assert (await lab_commands.call("rules"))[0]["hits"] == 0
            assert r.rules.get(rule).node == 1
            await client.close()

    @pytest.mark.parametrize(
        ("peer", "client_id", "expected"),
        [
            ("1", "broker-1-to-controller", True),
            ("1", "broker-1-fetcher-0-leader-2", True),
            ("1", "raft-client-1", True),
            ("1", "1", True),
            ("1", "broker-12-to-controller", False),
            ("1", "raft-client-11", False),
            ("prod", "producer-1", True),
            ("prod", "consumer-1", False),
            ("prod", None, False),
        ],
    )
    def test_a_peer_is_a_node_or_the_beginning_of_a_client_id(
        self, peer: str, client_id: str | None, expected: bool
    ) -> None:
        assert is_peer(peer, client_id) is expected

    def test_topic_ids_have_names_while_the_topic_exists(self) -> None:
        assert uuid_namer(dict)(UUID(int=1)) is None


class TestRefusing:
    async def test_a_refusal_goes_to_each_partition_of_a_produce(self) -> None:
        async with running() as r:
            await commands_of(r).call("fail", api="PRODUCE", error="NOT_LEADER_OR_FOLLOWER")
            client = await r.client()
            produce(client, "t", 3)
            _, body = await client.receive()
            answer = messages.decode_response(ApiKey.PRODUCE, 9, body)
            (topic,) = answer.responses
            (partition,) = topic.partition_responses
            assert (topic.name, partition.index) == ("t", 3)
            assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            await client.close()

    @pytest.mark.parametrize("side", ["request", "response"])
    async def test_only_the_partition_of_the_rule_is_refused(self, side: str) -> None:
        async with running() as r:
            seen: list[list[tuple[str, int]]] = []

            def handle(ctx: Any, body: memoryview) -> None:
                request = messages.decode_request(ApiKey.PRODUCE, 9, body)
                seen.append([(one.name, part.index) for one in request.topic_data for part in one.partition_data])
                topics = [
                    {
                        "name": one.name,
                        "partition_responses": [
                            {"index": part.index, "error_code": 0, "base_offset": 7} for part in one.partition_data
                        ],
                    }
                    for one in request.topic_data
                ]
                ctx.respond_fields(responses=topics)

            r.node.raw = handle
            await commands_of(r).call(
                "fail", api="PRODUCE", topic="a", partition=1, error="NOT_LEADER_OR_FOLLOWER", side=side
            )
            client = await r.client()
            data = [
                {"name": name, "partition_data": [{"index": number, "records": None} for number in numbers]}
                for name, numbers in (("a", (0, 1, 2)), ("b", (1,)))
            ]
            answer = await client.ask(
                ApiKey.PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data
            )
            found = {
                (topic.name, one.index): (one.error_code, one.base_offset)
                for topic in answer.responses
                for one in topic.partition_responses
            }
            refused = found.pop(("a", 1))
            assert refused[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert found == {("a", 0): (0, 7), ("a", 2): (0, 7), ("b", 1): (0, 7)}
            handled = [("a", 0), ("a", 2), ("b", 1)]
            assert seen == [handled if side == "request" else [("a", 0), ("a", 1), ("a", 2), ("b", 1)]]
            await client.close()

    async def test_a_topic_is_refused_with_all_its_partitions(self) -> None:
        async with running() as r:
            r.node.raw = lambda ctx, body: ctx.respond_fields(responses=[])
            await commands_of(r).call("fail", topic="a", error="NOT_LEADER_OR_FOLLOWER")
            client = await r.client()
            data = [
                {"name": name, "partition_data": [{"index": number, "records": None} for number in (0, 1)]}
                for name in ("a", "b")
            ]
            answer = await client.ask(
                ApiKey.PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data
            )
            (topic,) = answer.responses
            assert (topic.name, [one.index for one in topic.partition_responses]) == ("a", [0, 1])
            await client.close()

    async def test_without_an_acknowledgement_nothing_is_answered(self) -> None:
        async with running() as r:
            effects: list[int] = []

            def handle(ctx: Any, body: memoryview) -> None:
                request = messages.decode_request(ApiKey.PRODUCE, 9, body)
                effects.extend(part.index for one in request.topic_data for part in one.partition_data)
                ctx.no_response()

            r.node.raw = handle
            await commands_of(r).call("fail", topic="a", partition=0, error="NOT_LEADER_OR_FOLLOWER")
            client = await r.client()
            data = [{"name": "a", "partition_data": [{"index": number, "records": None} for number in (0, 1)]}]
            client.send(ApiKey.PRODUCE, 9, transactional_id=None, acks=0, timeout_ms=1000, topic_data=data)
            assert (await client.ask(ApiKey.LIST_GROUPS, 4)).error_code == 0
            assert effects == [1]
            await client.close()

    async def test_a_refusal_goes_to_the_response_where_that_has_an_error(self) -> None:
        async with running() as r:
            await commands_of(r).call("fail", api="LIST_GROUPS", error="COORDINATOR_NOT_AVAILABLE", side="response")
            client = await r.client()
            answer = await client.ask(ApiKey.LIST_GROUPS, 4)
            assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await client.close()

    async def test_a_connection_can_be_cut_when_the_answer_is_there(self) -> None:
        async with running() as r:
            effects = effects_of(r)
            await commands_of(r).call("disconnect", api="PRODUCE", side="response")
            client = await r.client()
            client.send_raw(ApiKey.PRODUCE, 9, b"x")
            assert await client.closed()
            assert effects == [b"x"]
            await client.close()


class TestLabCommands:
    @pytest.mark.parametrize(
        ("command", "arguments", "message"),
        [
            ("hodl", {}, r"no command 'hodl' \(did you mean hold\?\); there are clear, delay, "),
            (
                "hold",
                {"api": "Prodce"},
                r"hold: no API 'Prodce' \(did you mean PRODUCE\?\); there are PRODUCE, FETCH, ",
            ),
            ("hold", {"count": "two"}, "hold: count=two is not of type integer: act on this many requests at most"),
            ("hold", {"count": True}, "hold: count=true is not of type integer"),
            ("hold", {"topic": ["t"]}, r'hold: topic=\["t"\] is not of type string'),
            ("delay", {"ms": "2s"}, "delay: ms=2s is not of type number: the delay in milliseconds"),
            ("delay", {"ms": -1}, "delay: ms=-1: not a number from 0 on"),
            ("hold", {"peers": 1}, "hold: unknown argument 'peers'; it takes api, peer, client_id, node, listener, "),
            ("hold", {"ms": 1}, "hold: unknown argument 'ms'"),
            ("hold", {"partition": 1}, "hold: partition requires topic"),
            ("hold", {"every": 0}, "hold: every=0: not a number from 1 on"),
            ("hold", {"count": 0}, "hold: count=0: not a number from 1 on"),
            ("hold", {"probability": 2}, "hold: probability=2: not between 0 and 1"),
            ("hold", {"seed": 2}, "hold: seed requires probability"),
            ("hold", {"side": "both"}, "hold: side=both is none of request, response"),
            (
                "hold",
                {"listener": "plain"},
                r"hold: no listener 'plain' \(did you mean PLAINTEXT\?\); there are PLAINTEXT",
            ),
            ("duplicate", {"side": "response"}, "duplicate: unknown argument 'side'"),
            ("delay", {}, "delay: ms is missing: the delay in milliseconds"),
            ("fail", {}, "fail: error is missing: the error's name or number"),
            ("fail", {"error": "OOPS"}, "fail: no error code 'OOPS'; there are UNKNOWN_SERVER_ERROR, NONE, "),
            ("fail", {"error": 5000}, "fail: unknown error code 5000; there are -1 to 1"),
            ("release", {"rule": 7}, "release: there is no rule 7"),
            ("rules", {"x": 1}, "rules: unknown argument 'x'; it takes no arguments"),
        ],
    )
    async def test_a_mistake_is_one_sentence(self, command: str, arguments: dict[str, Any], message: str) -> None:
        async with running() as r:
            with pytest.raises(LabCommandError, match=message):
                await commands_of(r).call(command, **arguments)

    async def test_waiting_has_a_limit(self) -> None:
        async with running() as r:
            lab_commands = commands_of(r)
            rule = (await lab_commands.call("hold"))["rule"]
            with pytest.raises(LabCommandError, match="wait: timed out"):
                await lab_commands.call("wait", rule=rule, seconds=0.01)

    async def test_help_describes_each_command(self) -> None:
        async with running() as r:
            described = await commands_of(r).call("help")
            assert {"hold", "release", "wait"} <= set(described)
            assert described["wait"]["arguments"][1] == {
                "name": "hits",
                "type": ["integer"],
                "required": False,
                "default": 1,
                "help": "the number of hits",
            }
            assert described["hold"]["undo"] == "`release` with its number, or `clear`"
            assert (described["rules"]["changes"], described["hold"]["changes"]) == (False, True)
