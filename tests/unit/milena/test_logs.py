"""`milena logs`: the selected lines, their form on a terminal, and following logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from milena.command_line.errors import UsageError, UserError
from milena.up.layout import ClusterDir
from milena.up.logs import LogFile, main, readable


def event(level: str, text: str, **fields: object) -> str:
    stamped = {"timestamp": "2026-11-22T13:20:09.077985Z", "level": level, "component": "broker", "event": text}
    return json.dumps(stamped | fields)


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    """The directory of a stopped cluster."""
    layout = ClusterDir(str(tmp_path))
    layout.create()
    Path(layout.settings).write_text("")
    write(tmp_path, "broker-1", event("info", "serves", node=1), event("warning", "slow"), event("error", "gone"))
    write(tmp_path, "controller-100", event("info", "leads"), "milena: no space left")
    write(tmp_path, "up", "broker-1 ready at 127.0.0.1:9092 (pid 7)", "warning: low on disk")
    return str(tmp_path)


def write(folder: Path, name: str, *lines: str) -> None:
    with (folder / "logs" / f"{name}.log").open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(arguments) == 0
    return capsys.readouterr().out.splitlines()


def test_lines_are_printed_unchanged_to_a_pipe(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "broker-1", "--dir", cluster)
    assert lines == (Path(cluster) / "logs" / "broker-1.log").read_text().splitlines()


def test_lines_of_several_nodes_are_printed_below_the_name_of_their_file(
    cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(capsys, "--lines", "1", "--dir", cluster)
    folder = f"{cluster}/logs"
    assert [line for line in lines if line.startswith("==>")] == [
        f"==> {folder}/broker-1.log <==",
        f"==> {folder}/controller-100.log <==",
        f"==> {folder}/up.log <==",
    ]
    assert len([line for line in lines if line]) == 6


@pytest.mark.parametrize(
    ("level", "count"),
    [("debug", 7), ("info", 7), ("warning", 4), ("error", 2), ("critical", 1)],
)
def test_only_lines_of_at_least_the_given_level_are_printed(
    level: str, count: int, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line that is no event is printed at every level, unless the supervisor wrote it."""
    lines = printed(capsys, "--level", level, "--dir", cluster)
    assert len([line for line in lines if line and not line.startswith("==>")]) == count


def test_the_number_of_lines_counts_only_lines_of_the_level(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = printed(capsys, "1", "--level", "warning", "--lines", "1", "--dir", cluster)
    assert json.loads(line)["event"] == "gone"
    assert printed(capsys, "1", "--lines", "0", "--dir", cluster) == []


def test_a_terminal_shows_one_line_for_each_event() -> None:
    assert readable(event("info", "serves", node=1)) == "13:20:09.077 info     broker: serves  node=1"
    assert readable(event("error", "gone")) == "\x1b[31m13:20:09.077 error    broker: gone\x1b[0m"
    assert readable("no event \x1b[2J") == "no event \\x1b[2J"


def test_a_stack_trace_is_shown_below_its_event() -> None:
    assert readable(event("info", "failed", exception="Traceback:\n  x")).splitlines()[1:] == [
        "    Traceback:",
        "      x",
    ]


def test_control_characters_are_not_printed_to_a_terminal() -> None:
    assert "\x1b" not in readable(event("info", "\x1b[2J", client="\x1b]0;x\x07"))


def test_a_log_is_followed_through_growth_and_replacement(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    log = LogFile(str(path))
    assert log.new_lines() == []
    path.write_text("one\ntw")
    assert log.new_lines() == ["one"]
    with path.open("a") as file:
        file.write("o\n")
    assert log.new_lines() == ["two"]
    path.write_text("x\n")
    assert log.new_lines() == ["x"]
    (tmp_path / "b.log").write_text("another file\n")
    os.replace(tmp_path / "b.log", path)
    assert log.new_lines() == ["another file"]


def test_following_ends_if_the_output_is_closed_and_starts_no_process(cluster: str) -> None:
    command = [sys.executable, "-P", "-m", "milena", "logs", "1", "-f", "--dir", cluster]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline()
        children = Path(f"/proc/{follower.pid}/task/{follower.pid}/children")
        assert not children.exists() or children.read_text() == ""
        follower.stdout.close()
        assert follower.wait(30) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--lines", "-5"], "--lines -5: not a number of at least 0"),
        (["--level", "warnings"], r"--level warnings: it is debug, .* \(did you mean warning\?\)"),
    ],
)
def test_a_wrong_command_line_is_refused(arguments: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        main(arguments)


def test_a_node_without_a_log_is_an_error(cluster: str) -> None:
    with pytest.raises(UserError, match="has no log of a node broker-7"):
        main(["broker-7", "--dir", cluster])
