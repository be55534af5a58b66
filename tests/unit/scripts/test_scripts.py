"""Parts of the scripts: installed files, offsets to reset to, filters, names of errors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from milena.protocol.errors import ErrorCode
from milena.scripts.api_versions import label
from milena.scripts.common.connection import parse_addresses
from milena.scripts.common.failures import ScriptError, kind_of
from milena.scripts.get_offsets import rule_of
from milena.scripts.groups import PARSER as GROUPS
from milena.scripts.install import main as install
from milena.scripts.reset_offsets import milliseconds_of, planned, time_of
from milena.scripts.server_stop import runs_node
from milena.scripts.table import MODULES
from milena.scripts.transactions_tool import main as transactions
from tests.wire.scripts import script

OF_T = ("--bootstrap-server", "h:1", "--topic", "t")


def test_the_scripts_are_written_with_and_without_suffix_and_run(tmp_path: Path) -> None:
    assert install([str(tmp_path / "bin")]) == 0
    names = {path.name for path in (tmp_path / "bin").iterdir()}
    assert names == {f"{script}{suffix}" for script in MODULES for suffix in ("", ".sh")}
    file = tmp_path / "bin" / "kafka-topics.sh"
    assert os.access(file, os.X_OK)
    ran = subprocess.run([file, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "4.4.0\n"


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("PT1S", 1000), ("P1DT2H3M4.5S", 93_784_500), ("PT-1M", -60_000), ("-PT1M", -60_000), ("p2d", 172_800_000)],
)
def test_durations_are_read_as_in_java(text: str, milliseconds: int) -> None:
    assert milliseconds_of(text) == milliseconds


def test_transactions_cannot_be_listed_without_a_broker() -> None:
    with pytest.raises(ScriptError, match=r"^kafka-transactions\.sh: error: argument --bootstrap-server is required"):
        transactions(["list"])


@pytest.mark.parametrize("text", ["", "P", "PT", "1D", "P1H", "PT1X"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ScriptError, match="Text cannot be parsed to a Duration"):
        milliseconds_of(text)


def test_times_are_of_utc_unless_they_name_a_zone() -> None:
    assert time_of("1970-01-01T00:00:01.500") == 1500
    assert time_of("1970-01-01T00:00:01.500Z") == 1500
    assert time_of("1970-01-01T01:00:01.500+01:00") == 1500
    for wrong in ("1970-01-01", "1970-13-01T00:00:00.000", "yesterday"):
        with pytest.raises(ScriptError, match="Unparseable date"):
            time_of(wrong)


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("t", {("t", 0), ("t", 9)}),
        ("t:1", set()),
        ("t:0-5", {("t", 0)}),
        ("t:5-", {("t", 9)}),
        (":-1", {("t", 0), ("u", 0)}),
        ("[tu]", {("t", 0), ("t", 9), ("u", 0)}),
    ],
)
def test_patterns_choose_partitions(rule: str, wanted: set[tuple[str, int]]) -> None:
    chosen = rule_of(rule)
    assert {one for one in (("t", 0), ("t", 9), ("u", 0)) if chosen(*one)} == wanted


def test_errors_have_the_names_of_kafkas_exceptions() -> None:
    for code, name in (
        (ErrorCode.TOPIC_ALREADY_EXISTS, "TopicExistsException"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "UnknownTopicOrPartitionException"),
        (ErrorCode.INVALID_CONFIG, "InvalidConfigurationException"),
        (ErrorCode.INVALID_REPLICATION_FACTOR, "InvalidReplicationFactorException"),
    ):
        assert kind_of(code) == f"org.apache.kafka.common.errors.{name}"


def test_apis_have_kafkas_names() -> None:
    assert [label(key) for key in (0, 22, 999)] == ["Produce", "InitProducerId", "UNKNOWN"]


def test_servers_are_hosts_with_ports_that_have_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_addresses("127.0.0.1:9092, PLAINTEXT://[::1]:9093,nowhere.invalid:1") == [
        ("127.0.0.1", 9092),
        ("::1", 9093),
    ]
    assert "Couldn't resolve server nowhere.invalid:1 from bootstrap.servers" in capsys.readouterr().err
    with pytest.raises(ScriptError, match=r"Invalid url in bootstrap\.servers: localhost"):
        parse_addresses("localhost")
    with pytest.raises(ScriptError, match="No resolvable bootstrap urls given"):
        parse_addresses("nowhere.invalid:1")


@pytest.mark.parametrize(
    ("line", "is_node"),
    [
        ("python -m milena node server.properties", True),
        ("/opt/milena/bin/python /opt/milena/bin/milena container", True),
        ("python -P -m milena.scripts kafka-server-start server.properties", True),
        ("python -P -m milena.scripts kafka-server-stop", False),
        ("vim milena node.py", False),
        ("python -m milena topic list", False),
    ],
)
def test_only_nodes_are_stopped(line: str, is_node: bool) -> None:
    assert runs_node(line.split()) == is_node


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "USAGE: kafka-server-start.sh [-daemon] server.properties [--override property=value]*"),
        (("f", "g"), "Found non argument parameters: g"),
    ],
)
def test_a_node_needs_its_file(words: tuple[str, ...], said: str) -> None:
    ended = script("kafka-server-start.sh", *words)
    assert ended.code == 1
    assert said in ended.out + ended.err


@pytest.mark.parametrize("content", [b"\xff,0,1\n", b"t,0,1,2,3\n"])
def test_a_file_of_offsets_that_cannot_be_read_is_named(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_bytes(content)
    with pytest.raises(ScriptError, match=re.escape(str(file))):
        planned(GROUPS.parse(["--from-file", str(file)]), "g")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("kafka-topics", "--list", "--bootstrap-server", ""), "No resolvable bootstrap urls given"),
        (
            ("kafka-console-consumer", *OF_T, "--partition", "0", "--offset", "9" * 19),
            "The provided offset value",
        ),
        (
            ("kafka-topics", *OF_T, "--create", "--partitions", "9" * 11),
            "Cannot parse argument '99999999999' of option partitions",
        ),
        (
            ("kafka-console-producer", *OF_T, "--reader-property", "key.separator="),
            "key.separator may not be empty",
        ),
    ],
)
def test_values_that_are_no_values_are_errors(words: tuple[str, ...], said: str) -> None:
    result = script(*words)
    assert result.code == 1 and said in result.err and "Traceback" not in result.err


def test_closed_streams_are_empty_ones() -> None:
    words = [sys.executable, "-P", "-m", "milena.scripts", "kafka-storage", "random-uuid"]
    closed = subprocess.run(
        ["sh", "-c", '"$@" <&- >&-', "sh", *words], stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert (closed.returncode, closed.stderr) == (0, "")
