"""kafka-transactions and `milena transactions` against Kafka and Milena: they print what Kafka's tool prints."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from milena.testing.local_cluster import LocalCluster
from tests.oracle.kafka_node import running_kafka
from tests.oracle.tools import TRANSACTIONS, Ran, Tools
from tests.wire.command import milena, refused
from tests.wire.hanging import LONG_AGO, UNVERIFIED, make_transactions
from tests.wire.scripts import script

CALLS = """
    list
    list --duration-filter 0
    list --duration-filter 3600000
    list --transactional-id-pattern T-.*
    list --transactional-id-pattern T-o
    list --transactional-id-pattern (
    describe --transactional-id T-ended
    describe --transactional-id T-ongoing
    describe --transactional-id T-hanging
    describe --transactional-id no-T
    describe
    describe-producers --topic T --partition 0
    describe-producers --topic T --partition 1
    describe-producers --topic T --partition 1 --broker-id 1
    describe-producers --topic T
    find-hanging --topic T
    find-hanging --topic T --partition 1
    find-hanging --topic T --max-transaction-timeout 0
    find-hanging --broker-id 1
    find-hanging
    find-hanging --broker-id 1 --partition 0
    abort --topic T --partition 1 --start-offset 77
    abort --topic T --partition 1
    abort --topic T --partition 1 --producer-id 7
    abort --topic T --partition 1 --producer-id 7 --producer-epoch 1
    forceTerminateTransaction
    nonsense
"""
MOVING = re.compile(r"\b\d{1,5} *(\t[^\t]*\t)$")
"""The duration in the description of an open transaction, which may have a digit more a moment later."""


@pytest.fixture(scope="module", params=["kafka", "milena"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One node that does not verify transactions, so that one can hang."""
    folder = tmp_path_factory.mktemp("node")
    if request.param == "milena":
        with LocalCluster.start(folder, brokers=1, overrides=UNVERIFIED) as cluster:
            yield cluster.bootstrap
        return
    with running_kafka(
        folder,
        transaction_state_log_replication_factor=1,
        transaction_state_log_min_isr=1,
        transaction_partition_verification_enable=False,
    ) as node:
        yield "{}:{}".format(*node.broker)


@pytest.fixture
def made(bootstrap: str, topic: str) -> str:
    make_transactions(bootstrap, topic)
    return topic


def test_the_script_prints_what_kafkas_tool_prints(tools: Tools, bootstrap: str, made: str) -> None:
    server = ("--bootstrap-server", bootstrap)
    differences = []
    for call in CALLS.strip().splitlines():
        arguments = re.sub(r"\bT\b", made, call).split()
        kafka = tools.run(TRANSACTIONS, *server, *arguments)
        ours = Ran(*script("kafka-transactions", *server, *arguments))
        if (kafka.status, table(kafka.out)) != (ours.status, table(ours.out)):
            differences.append(f"{call}\n{kafka}\n{ours}")
        elif ours.status and "usage" not in kafka.err and ours.err.splitlines()[0] not in kafka.err.splitlines():
            differences.append(f"{call}\n{kafka.err}\n{ours.err}")
    assert not differences, "\n".join(differences)


def table(out: str) -> list[str]:
    """Return the lines of a table without what changes from moment to moment."""
    return sorted(MOVING.sub(r"N\1", line) for line in out.splitlines())


def test_a_hanging_transaction_is_found_and_aborted(bootstrap: str, made: str) -> None:
    server = ("-b", bootstrap)
    [found] = json.loads(milena("transactions", "find-hanging", "--topic", made, "--json", *server).out)
    assert (found["partition"], found["start_offset"], found["last_timestamp"]) == (0, 0, LONG_AGO)
    held = ("consume", made, "--from-beginning", "--exit", "--isolation-level", "read_committed", "--partition", "0")
    assert milena("consume", made, "--from-beginning", "--exit", "--partition", "0", *server).out == "hanging\n"
    milena("produce", made, "--partition", "0", *server, stdin="behind\n")
    assert milena(*held, *server).out == ""
    where = ("--topic", made, "--partition", "0")
    said = milena("transactions", "abort", *where, "--start-offset", "0", *server).out
    assert said == f"{made}-0: aborted the transaction of producer id {found['producer_id']}\n"
    assert milena(*held, *server).out == "behind\n"
    assert json.loads(milena("transactions", "find-hanging", "--topic", made, "--json", *server).out) == []
    producers = json.loads(milena("transactions", "describe-producers", *where, "--json", *server).out)
    assert {one["start_offset"] for one in producers} == {None}
    assert found["producer_id"] in {one["producer_id"] for one in producers}


def test_a_transaction_that_its_coordinator_will_end_is_aborted_only_by_force(bootstrap: str, made: str) -> None:
    server, where = ("-b", bootstrap), ("--topic", made, "--partition", "1")
    shown = ("transactions", "describe-producers", *where, "--json", *server)
    [ongoing] = [one for one in json.loads(milena(*shown).out) if one["start_offset"] is not None]
    abort = ("transactions", "abort", *where, "--start-offset", str(ongoing["start_offset"]), *server)
    said = refused(*abort)
    assert said.startswith(f"{made}-1: broker 1 will end the transaction of {made}-ongoing (Ongoing).")
    identity = {"--producer-id": "producer_id", "--producer-epoch": "producer_epoch"}
    options = [word for option, field in identity.items() for word in (option, str(ongoing[field]))]
    assert refused("transactions", "abort", *where, *options, "--coordinator-epoch", "0", *server) == said
    assert ongoing in json.loads(milena(*shown).out)
    milena(*abort, "--force")
    assert [one for one in json.loads(milena(*shown).out) if one["start_offset"] is not None] == []


def test_an_open_transaction_is_ended_by_its_id(bootstrap: str, made: str) -> None:
    server, name = ("-b", bootstrap), f"{made}-ongoing"
    found = json.loads(milena("transactions", "describe", name, "--json", *server).out)
    assert (found["state"], found["partitions"]) == ("Ongoing", [{"topic": made, "partition": 1}])
    milena("transactions", "force-terminate", name, *server)
    found = json.loads(milena("transactions", "describe", name, "--json", *server).out)
    assert (found["state"], found["start_ms"], found["partitions"]) == ("Empty", None, [])
    read = ("consume", made, "--from-beginning", "--exit", "--partition", "1", *server)
    assert milena(*read).out == "ended\nongoing\n"
    assert milena(*read, "--isolation-level", "read_committed").out == "ended\n"


def test_transactional_ids_are_filtered(bootstrap: str, made: str) -> None:
    def listed(*filters: str) -> set[str]:
        rows = json.loads(milena("transactions", "list", "--json", "-b", bootstrap, *filters).out)
        return {row["transactional_id"].rpartition("-")[2] for row in rows if row["transactional_id"].startswith(made)}

    assert listed() == {"ended", "ongoing", "hanging"}
    assert listed("--state", "Ongoing") == {"ongoing"}
    assert listed("--transactional-id-pattern", f"{made}-(ended|hanging)") == {"ended", "hanging"}
    found = json.loads(milena("transactions", "describe", f"{made}-ended", "--json", "-b", bootstrap).out)
    assert listed("--producer-id", str(found["producer_id"])) == {"ended"}


def test_lines_are_written_in_transactions(bootstrap: str, topic: str) -> None:
    server, name = ("-b", bootstrap), f"{topic}-id"
    milena("topic", "create", topic, *server)
    milena("produce", topic, "--transactional-id", name, *server, stdin="a\nb\n")
    milena("produce", topic, "--transactional-id", name, "--commit-every", "1", *server, stdin="c\nd\n")
    milena("topic", "alter", topic, "--config", "max.message.bytes=200", *server)
    said = refused("produce", topic, "--transactional-id", name, *server, stdin=f"e\n{'f' * 500}\n")
    assert "MESSAGE_TOO_LARGE" in said
    read = ("consume", topic, "--from-beginning", "--exit", "--isolation-level", "read_committed")
    assert milena(*read, *server).out == "a\nb\nc\nd\n"
    ends = [line.split() for line in milena("transactions", "describe", name, *server).out.splitlines()]
    assert ends[1][4] in ("CompleteAbort", "CompleteCommit")


def test_a_group_reads_what_is_committed(bootstrap: str, made: str) -> None:
    server = ("-b", bootstrap)
    read = ("consume", made, "--group", f"{made}-group", "--from-beginning", "--isolation-level", "read_committed")
    assert milena(*read, "--max", "1", *server).out == "ended\n"


def test_wrong_options_are_explained(bootstrap: str, topic: str) -> None:
    server = ("-b", bootstrap)
    said = refused("transactions", "describe", "unknown", *server)
    assert said == "no coordinator knows the transactional id unknown"
    said = refused("transactions", "abort", "--topic", topic, "--partition", "0", *server, code=2)
    assert (
        said
        == "milena transactions abort needs --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch"
    )
    said = refused("transactions", "find-hanging", *server, code=2)
    assert said == "milena transactions find-hanging needs --topic or --broker-id"
    assert refused("produce", topic, "--commit-every", "2", *server, code=2).startswith("--commit-every needs")
    said = refused("produce", topic, "--transactional-id", "t", "--acks", "1", *server, code=2)
    assert said == "--transactional-id needs --acks all"
    said = refused("consume", topic, "--isolation-level", "serializable", *server, code=2)
    assert said == "--isolation-level serializable: one of read_uncommitted, read_committed"
