"""kafka-consumer-groups against Milena."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer

from tests.oracle.tools import ALL_GROUPS, GROUPS, TOPICS, Tools

Server = tuple[str, str]


@pytest.fixture
def filled(tools: Tools, server: Server, topic: str) -> str:
    """A topic of two partitions, with 50 records in the first and 20 in the second, with one timestamp for each of the
    first 70 seconds of 2020."""
    tools(TOPICS, *server, "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=-1")
    producer = Producer({"bootstrap.servers": server[1]})
    for number in range(70):
        producer.produce(topic, value=b"v", partition=int(number >= 50), timestamp=1_577_836_800_000 + number * 1000)
    assert producer.flush(20) == 0
    return topic


@contextmanager
def member(server: Server, group: str, topic: str, **config: object) -> Iterator[Consumer]:
    settings = {"bootstrap.servers": server[1], "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {name.replace("_", "."): value for name, value in config.items()})
    consumer.subscribe([topic])
    yield consumer
    consumer.close()


def committed(server: Server, group: str, topic: str) -> None:
    """An empty group that has committed the end of its topic."""
    with member(server, group, topic) as consumer:
        assert len(consumer.consume(70, timeout=20)) == 70
        consumer.commit(asynchronous=False)


def rows(shown: str) -> list[list[str]]:
    """Return the rows of a table without its heading."""
    table = [line.split() for line in shown.splitlines() if line.strip()]
    start = next(index for index, line in enumerate(table) if line[0] == "GROUP")
    return sorted(table[start + 1 :])


def test_a_group_with_a_member_is_described_and_protected(tools: Tools, server: Server, filled: str) -> None:
    group = f"{filled}-readers"
    described = ("--describe", "--group", group)
    with member(server, group, filled, client_id="me", group_instance_id="one") as consumer:
        assert len(consumer.consume(70, timeout=20)) == 70
        consumer.commit(asynchronous=False)
        first, second = rows(tools(GROUPS, *server, *described))
        assert first[:6] == [group, filled, "0", "50", "50", "0"]
        assert second[:6] == [group, filled, "1", "20", "20", "0"]
        assert re.fullmatch(r"one-[0-9a-f-]{36}", first[6]) and first[7:] == ["/127.0.0.1", "me"]
        (of_member,) = rows(tools(GROUPS, *server, *described, "--members", "--verbose"))
        assert of_member[2:6] == ["one", "/127.0.0.1", "me", "2"]
        assert f"{filled}:0,1" in "".join(of_member[6:])
        (state,) = rows(tools(GROUPS, *server, *described, "--state"))
        assert (state[0], *state[-3:]) == (group, "range", "Stable", "1")
        assert [group, "Stable"] in rows(tools(GROUPS, *server, "--list", "--state"))
        assert [group, "Classic"] in rows(tools(GROUPS, *server, "--list", "--type", "classic"))
        refused = tools.run(GROUPS, *server, "--reset-offsets", "--group", group, "--all-topics", "--to-earliest")
        assert "current state is Stable" in refused.out + refused.err
        refused = tools.run(GROUPS, *server, "--delete", "--group", group)
        assert "GroupNotEmptyException" in refused.out + refused.err
        assert "GroupSubscribedToTopicException" in delete_offsets(tools, server, group, f"{filled}:0")
    # A static member does not leave the group when it closes.
    assert [group, "Stable"] in rows(tools(GROUPS, *server, "--list", "--state", "Stable"))


def delete_offsets(tools: Tools, server: Server, group: str, topic: str) -> str:
    ran = tools.run(GROUPS, *server, "--delete-offsets", "--group", group, "--topic", topic)
    return ran.out + ran.err


def test_offsets_of_an_empty_group_are_reset(tools: Tools, server: Server, filled: str) -> None:
    group = f"{filled}-readers"
    committed(server, group, filled)
    reset = (*server, "--reset-offsets", "--group", group, "--topic", filled)
    for how, first, second in (
        (["--to-earliest"], "0", "0"),
        (["--to-latest"], "50", "20"),
        (["--shift-by", "-5"], "45", "15"),
        (["--to-offset", "30"], "30", "20"),
        (["--to-current"], "30", "20"),
        (["--to-datetime", "2020-01-01T00:00:10.000"], "10", "0"),
        (["--by-duration", "PT1H"], "50", "20"),
    ):
        new_offsets = [[group, filled, "0", first], [group, filled, "1", second]]
        assert rows(tools(GROUPS, *reset, *how, "--dry-run")) == new_offsets, how
        assert rows(tools(GROUPS, *reset, *how, "--execute")) == new_offsets, how
        shown = rows(tools(GROUPS, *server, "--describe", "--group", group))
        assert [one[3] for one in shown] == [first, second], how
    exported = tools(GROUPS, *server, "--reset-offsets", "--group", group, "--all-topics", "--to-earliest", "--export")
    assert sorted(exported.split()) == [f'"{filled}",0,0', f'"{filled}",1,0']


def test_offsets_are_set_for_a_group_that_did_not_exist(tools: Tools, server: Server, filled: str) -> None:
    group = f"{filled}-new"
    reset = ("--reset-offsets", "--group", group, "--topic", f"{filled}:1", "--to-offset", "7", "--execute")
    assert rows(tools(GROUPS, *server, *reset)) == [[group, filled, "1", "7"]]
    (state,) = rows(tools(GROUPS, *server, "--describe", "--group", group, "--state"))
    assert state[-2:] == ["Empty", "0"]
    with member(server, group, filled) as consumer:
        found = consumer.consume(63, timeout=20)
        assert sorted(one.offset() or 0 for one in found if one.partition() == 1)[0] == 7


def test_groups_and_their_offsets_are_deleted(tools: Tools, server: Server, filled: str) -> None:
    group = f"{filled}-readers"
    committed(server, group, filled)
    shown = delete_offsets(tools, server, group, f"{filled}:1")
    assert re.search(rf"^{filled}\s+1\s+Successful", shown, re.M)
    assert [one[:3] for one in rows(tools(GROUPS, *server, "--describe", "--group", group))] == [[group, filled, "0"]]
    assert "does not exist" in delete_offsets(tools, server, f"{group}-missing", filled)
    assert group in tools(GROUPS, *server, "--list").split()
    assert any(one[0] == group for one in rows(tools(ALL_GROUPS, *server, "--list", "--consumer")))
    assert f"('{group}') was successful" in tools(GROUPS, *server, "--delete", "--group", group)
    assert group not in tools(GROUPS, *server, "--list").split()
    missing = tools.run(GROUPS, *server, "--delete", "--group", group)
    assert "GroupIdNotFoundException" in missing.out + missing.err
    assert f"Group {group} not found" in tools.run(GROUPS, *server, "--describe", "--group", group).err
