"""`milena topic`, `group`, `broker`, `elect` and `reassign` on a simulated cluster: their effects and their output."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from milena.client.cluster import Cluster
from milena.client.group_consumer import GroupConsumer
from milena.client.producer import Producer
from milena.command_line.errors import UsageError, UserError
from milena.command_line.options import CommandLine, Values
from milena.commands import broker, elect, group, reassign, topic
from milena.lab.cluster import start_cluster
from milena.lab.world.world import World, simulate
from milena.protocol.errors import KafkaError

Body = Callable[[Values, Cluster], Awaitable[int]]
COMMANDS: Mapping[str, tuple[CommandLine, Body]] = {
    "topic create": (topic.CREATE, topic.create),
    "topic list": (topic.LIST, topic.list_topics),
    "topic describe": (topic.DESCRIBE, topic.describe),
    "topic delete-records": (topic.DELETE_RECORDS, topic.delete_records),
    "group list": (group.LIST, group.list_groups),
    "group describe": (group.DESCRIBE, group.describe),
    "group delete": (group.DELETE, group.delete),
    "group reset-offsets": (group.RESET, group.reset),
    "broker list": (broker.LIST, broker.list_all),
    "broker describe": (broker.DESCRIBE, broker.describe),
    "broker alter": (broker.ALTER, broker.alter),
    "elect": (elect.ELECT, elect.elect),
    "reassign start": (reassign.START, reassign.start),
    "reassign list": (reassign.LIST, reassign.list_moves),
}


class Person:
    """Runs commands as a user does, and returns what they print."""

    def __init__(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster = cluster
        self._capsys = capsys

    async def types(self, command: str, *arguments: str, code: int = 0) -> str:
        """Run a command; return its standard output."""
        line, body = COMMANDS[command]
        assert await body(line.parse(arguments), self.cluster) == code
        return self._capsys.readouterr().out

    async def asks(self, command: str, *arguments: str, code: int = 0) -> Any:
        """Run a command with --json; return the parsed output."""
        return json.loads(await self.types(command, *arguments, "--json", code=code))

    async def writes(self, name: str, count: int) -> None:
        """Write records to partition 0."""
        producer = Producer(self.cluster)
        for number in range(count):
            await producer.send(name, b"%d" % number, partition=0)
        await producer.flush()
        await producer.close()

    async def reads(self, name: str, count: int, *, within: str) -> GroupConsumer:
        """A member of the group ``within`` that has read and committed so many records."""
        consumer = GroupConsumer(self.cluster, within, [name], reset="earliest")
        seen = 0
        while seen < count:
            seen += len(await consumer.poll(5.0, count - seen))
        await consumer.commit()
        return consumer


def played(play: Callable[[Person], Awaitable[None]], capsys: pytest.CaptureFixture[str]) -> None:
    """Run a test with three brokers and a user of the commands."""

    async def run(world: World) -> None:
        cluster = await start_cluster(world, brokers=3, overrides={"offsets_topic_replication_factor": 1})
        async with cluster.client() as client:
            await play(Person(client, capsys))

    simulate(run, seed=0)


def test_topics_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    async def play(person: Person) -> None:
        created = await person.asks("topic create", "t", "--partitions", "2", "--config", "retention.ms=1000")
        assert (created["name"], created["partitions"], created["internal"]) == ("t", 2, False)
        assert await person.asks("topic list") == [created]
        (described,) = await person.asks("topic describe", "t")
        assert described["configs"] == {"retention.ms": "1000"}
        first, second = described["partitions"]
        assert (first["partition"], first["leader_epoch"], first["elr"]) == (0, 0, [])
        assert second["leader"] == second["replicas"][0] == second["isr"][0]

    played(play, capsys)


def test_both_internal_topics_are_listed_only_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    async def play(person: Person) -> None:
        for name in ("__remote_log_metadata", "__consumer_offsets", "own"):
            await person.types("topic create", name, "--partitions", "1")
        assert [line.split()[0] for line in (await person.types("topic list")).splitlines()] == ["own"]
        listed = await person.asks("topic list", "--internal")
        assert {one["name"]: one["internal"] for one in listed} == {
            "__consumer_offsets": True,
            "__remote_log_metadata": True,
            "own": False,
        }

    played(play, capsys)


def test_offsets_of_a_group_without_members_are_reset(capsys: pytest.CaptureFixture[str]) -> None:
    async def play(person: Person) -> None:
        await person.types("topic create", "t", "--partitions", "2")
        await person.writes("t", 9)
        await (await person.reads("t", 5, within="g")).close()
        shown = await person.types("group reset-offsets", "g", "t", "--to-latest")
        assert [line.split() for line in shown.splitlines()] == [
            ["topic", "partition", "committed", "new", "offset"],
            ["t", "0", "5", "9"],
            ["t", "1", "-", "0"],
            ["nothing", "is", "committed", "without", "--execute"],
        ]
        offsets = (await person.asks("group describe", "g"))["offsets"]
        assert offsets == [{"topic": "t", "partition": 0, "committed": 5, "log_end_offset": 9, "lag": 4}]
        for arguments, wanted in (
            (["t:0", "--to-offset", "2"], {("t", 0): 2}),
            (["--all-topics", "--to-earliest"], {("t", 0): 0}),
            (["t", "--to-offset", "100"], {("t", 0): 9, ("t", 1): 0}),
        ):
            done = await person.asks("group reset-offsets", "g", *arguments, "--execute")
            assert done["executed"] is True
            assert {(one["topic"], one["partition"]): one["new_offset"] for one in done["offsets"]} == wanted
            found = (await person.asks("group describe", "g"))["offsets"]
            assert wanted.items() <= {(one["topic"], one["partition"]): one["committed"] for one in found}.items()

    played(play, capsys)


def test_resetting_to_an_offset_outside_of_a_partition_prints_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    async def play(person: Person) -> None:
        await person.types("topic create", "t", "--partitions", "1")
        await person.writes("t", 3)
        line, body = COMMANDS["group reset-offsets"]
        await body(line.parse(["g", "t", "--to-offset", "7"]), person.cluster)
        assert capsys.readouterr().err.endswith("warning: t-0 begins at 0 and ends before 3: 3\n")

    played(play, capsys)


def test_a_group_with_members_keeps_its_offsets(capsys: pytest.CaptureFixture[str]) -> None:
    async def play(person: Person) -> None:
        await person.types("topic create", "t", "--partitions", "1")
        await person.writes("t", 3)
        member = await person.reads("t", 1, within="g")
        with pytest.raises(UserError, match="group g is Stable: stop its members first"):
            await person.types("group reset-offsets", "g", "t", "--to-earliest", "--execute")
        with pytest.raises(UserError, match=r"group g: the group has members; stop them first \(NON_EMPTY_GROUP\)"):
            await person.types("group delete", "g")
        described = await person.asks("group describe", "g")
        assert described["members"][0]["partitions"] == [{"topic": "t", "partition": 0}]
        await member.close()
        assert await person.types("group delete", "g") == "g: deleted\n"
        assert await person.asks("group list") == []
        assert await person.asks("group delete", "g", code=1) == [{"group": "g", "error": "GROUP_ID_NOT_FOUND"}]

    played(play, capsys)


def test_records_are_deleted_before_an_offset(capsys: pytest.CaptureFixture[str]) -> None:
    async def play(person: Person) -> None:
        await person.types("topic create", "t", "--partitions", "1")
        await person.writes("t", 9)
        assert await person.types("topic delete-records", "t:0=4") == "t-0: begins at offset 4\n"
        with pytest.raises(UserError, match="t-0 begins at 4 and ends before 9; not 20"):
            await person.types("topic delete-records", "t:0=20")
        rest = await person.asks("topic delete-records", "t:0=-1")
        assert rest == [{"topic": "t", "partition": 0, "log_start_offset": 9}]
        with pytest.raises(KafkaError, match="t-7 does not exist"):
            await person.types("topic delete-records", "t:7=0")

    played(play, capsys)


def test_brokers_are_configured(capsys: pytest.CaptureFixture[str]) -> None:
    async def play(person: Person) -> None:
        assert [one["state"] for one in await person.asks("broker list")] == ["active"] * 3
        await person.types("broker alter", "2", "--config", "num.io.threads=5")
        await person.types("broker alter", "--default", "--config", "log.retention.ms=1000")
        of = {one["name"]: (one["value"], one["source"]) for one in await person.asks("broker describe", "2")}
        assert of["num.io.threads"] == ("5", "DYNAMIC_BROKER_CONFIG")
        assert of["log.retention.ms"] == ("1000", "DYNAMIC_DEFAULT_BROKER_CONFIG")
        assert "num.io.threads" not in await person.types("broker describe", "1")
        assert "num.io.threads" in await person.types("broker describe", "1", "--all")
        await person.types("broker alter", "--default", "--delete-config", "log.retention.ms")
        assert await person.types("broker describe", "--default") == "no configuration is set\n"
        with pytest.raises(UserError, match=r"no such broker configuration \(did you mean num.io.threads\?\)"):
            await person.types("broker alter", "2", "--delete-config", "num.io.thread")
        with pytest.raises(UserError, match=r"broker 9: .*BROKER_NOT_AVAILABLE"):
            await person.types("broker describe", "9")

    played(play, capsys)


def test_elections_and_reassignments_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    async def play(person: Person) -> None:
        await person.types("topic create", "t", "--partitions", "1", "--replicas", "1")
        assert await person.asks("elect", "t") == [
            {"topic": "t", "partition": 0, "error": None, "message": None, "elected": False}
        ]
        (failed,) = await person.asks("reassign start", "t:0=77", code=1)
        assert (failed["topic"], failed["partition"]) == ("t", 0)
        assert failed["error"] == "INVALID_REPLICA_ASSIGNMENT"
        assert await person.asks("reassign list") == []

    played(play, capsys)


@pytest.mark.parametrize(
    ("command", "arguments", "said"),
    [
        ("group reset-offsets", ["g", "t"], "needs one of --to-earliest, --to-latest, --to-offset"),
        ("group reset-offsets", ["g", "t", "--to-latest", "--to-earliest"], "needs one of"),
        ("group reset-offsets", ["g", "--to-latest"], "needs topics or partitions, or --all-topics"),
        (
            "group reset-offsets",
            ["g", "t", "--to-latest", "--execute", "--dry-run"],
            "--execute and --dry-run exclude each other",
        ),
        ("group reset-offsets", ["g", "t", "--to-offset", "-1"], "--to-offset -1: not a number of at least 0"),
        ("group delete", [], "needs the names of groups"),
        ("topic delete-records", [], "needs TOPIC:PARTITION=OFFSET"),
        ("topic delete-records", ["t=4"], "t=4: write it as TOPIC:PARTITION=OFFSET"),
        ("broker describe", [], "name one broker by its id, or use --default"),
        ("broker describe", ["1", "--default"], "name one broker by its id, or use --default"),
        ("broker alter", ["1"], "needs --config or --delete-config"),
    ],
)
def test_a_wrong_command_line_is_refused(
    command: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def play(person: Person) -> None:
        with pytest.raises(UsageError, match=said):
            await person.types(command, *arguments)

    played(play, capsys)
