"""Output on a terminal: the live table of `milena up`, and the human-readable log of a node."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

from milena.testing.local_cluster import MILENA
from milena.up.ports import free
from tests.wire.command import without_kafka
from tests.wire.screen import Terminal

ENVIRONMENT = {**without_kafka(), "TERM": "xterm"}


def rows(screen: str) -> dict[str, list[str]]:
    """Return the table's rows by node. Fails if a node has two rows."""
    found = [line.split() for line in screen.splitlines() if re.match(r"(broker|controller)-\d+ {2}", line)]
    assert len({row[0] for row in found}) == len(found), screen
    return {row[0]: row[1:] for row in found}


def states(screen: str) -> list[str]:
    return [row[0] for row in rows(screen).values()]


def test_the_table_shows_the_nodes_as_they_are(tmp_path: Path) -> None:
    port = free("127.0.0.1", 2)[0]
    command = [*MILENA, "up", "--dir", str(tmp_path), "--brokers", "2", "--port", str(port)]
    terminal = Terminal(command, ENVIRONMENT)
    terminal.read_until(lambda screen: states(screen) == ["starting"] * 3)
    terminal.read_until(lambda screen: "ready bootstrap=" in screen and states(screen) == ["ready"] * 3)
    bootstrap, ready, title, head, *table = terminal.screen.splitlines()
    assert bootstrap == f"ready bootstrap=127.0.0.1:{port},127.0.0.1:{port + 1}"
    assert re.fullmatch(r"ready after \d+\.\d\d s; Ctrl-C stops", ready)
    assert (title, head.split()) == (f"Milena in {tmp_path}"[:80], ["node", "state", "address", "pid", "memory"])
    pids = {node["id"]: node["pid"] for node in json.loads((tmp_path / "nodes.json").read_text())}
    assert len(table) == 3
    assert rows(terminal.screen)["broker-2"][:3] == ["ready", f"127.0.0.1:{port + 1}", str(pids[2])]

    os.kill(pids[2], signal.SIGKILL)
    terminal.read_until(lambda screen: sorted(states(screen)) == ["down", "ready", "ready"])
    assert rows(terminal.screen)["broker-2"] == ["down", f"127.0.0.1:{port + 1}", "-"]
    assert "broker-2 was ended by signal 9; to restart it: milena lab broker-2 start" in terminal.screen
    assert "\x1b[32mready" in terminal.text
    assert "\x1b[31mdown" in terminal.text

    terminal.type(b"\x03")
    assert terminal.end() == 0
    assert terminal.screen.rstrip().endswith("stopped")
    assert not rows(terminal.screen)


def test_a_narrow_terminal_wraps_no_line(tmp_path: Path) -> None:
    """A wrapped line would take two rows of the screen, and the next table would not overwrite all of the last one."""
    command = [*MILENA, "up", "--dir", str(tmp_path), "--brokers", "1", "--port", "0"]
    terminal = Terminal(command, ENVIRONMENT, columns=40)
    terminal.read_until(lambda screen: states(screen) == ["ready"] * 2)
    terminal.type(b"\x03")
    terminal.end()
    table = [line for line in terminal.screen.splitlines() if "bootstrap" not in line]
    assert max(map(len, table)) <= 40


def test_a_nodes_log_is_human_readable_on_a_terminal(tmp_path: Path) -> None:
    broker, controller = free("127.0.0.1", 2)
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"node.id=1\nprocess.roles=broker,controller\ncontroller.listener.names=CONTROLLER\nlog.dirs={tmp_path}/data\n"
        f"listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}\n"
        f"controller.quorum.voters=1@127.0.0.1:{controller}\nsasl.enabled.mechanisms=PLAIN\n"
    )
    terminal = Terminal([*MILENA, "node", str(properties)], ENVIRONMENT)
    terminal.read_until(lambda screen: "ready node=1" in screen)
    terminal.type(b"\x03")
    assert terminal.end() == 0
    lines = terminal.screen.splitlines()
    assert any(re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} info +broker: broker serves node=1 .*", line) for line in lines)
    assert any("warning" in line and "keys of TLS, SASL and ACLs, without effect" in line for line in lines)
    assert "\x1b[33m" in terminal.text
    assert not any(line.startswith("{") for line in lines)
    assert any("node stops node=1 reason=SIGINT" in line for line in lines)
