"""The chaos command, and how its adapters convert answers that no cluster gives on demand."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from milena.command_line.errors import UsageError, UserError
from milena.commands import chaos, history
from milena.commands.chaos import repetition_of
from milena.lab.chaos.clients import Sent
from milena.lab.chaos.journal import HISTORY
from milena.lab.chaos.runner import ABOUT, Order
from milena.lab.histories.events import RequestOutcome, Send, write
from milena.testing.chaos import CLIENT_LOG, Task, judging_of, run_at
from milena.testing.chaos_clients.confluent import sent_of

ROOT = Path(__file__).parents[3]


def test_the_command_that_repeats_a_run_does_not_name_the_report_folder() -> None:
    for report in (["--report", "/tmp/one"], ["--report=/tmp/one"], []):
        again = repetition_of(["--on", "processes", *report, "--seed", "3", "--unsafe"], ("milena", "chaos"))
        assert again == "milena chaos --on processes --seed 3 --unsafe"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--on", "moon"], "--on moon: must be one of processes, simulation"),
        (["--faults", "kill,fire"], "unknown fault 'fire'"),
        (["--clients", "milena,pykafka"], "unknown library 'pykafka'"),
        (["--on", "simulation", "--clients", "aiokafka"], "Milena's own client only"),
        (["--tier", "moon"], "--tier moon: must be folder or fsspec"),
        (["--on", "simulation", "--tier", "fsspec"], "fsspec needs --on processes"),
        (["--seconds", "0"], "must be more than 0 seconds"),
        (["--pace", "nan"], "not a number of seconds"),
    ],
)
def test_wrong_options_are_refused_before_a_cluster_starts(arguments: list[str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        chaos.main(arguments)


def test_a_report_needs_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="not empty"):
        chaos.main(["--report", str(tmp_path)])


def test_a_run_in_the_simulation_writes_a_report_and_its_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, file = tmp_path / "report", tmp_path / "history.jsonl"
    options = ["--on", "simulation", "--seed", "3", "--seconds", "4", "--faults", "kill", "--pace", "1"]
    code = chaos.main([*options, "--report", str(report), "--history", str(file)])
    assert "1 anomal" not in capsys.readouterr().out
    assert file.read_bytes() == (report / HISTORY).read_bytes()
    assert json.loads((report / ABOUT).read_text())["place"] == "simulation"
    assert code in (0, 1)  # a short run may fail because clients were idle


class Known:
    """Metadata of a record that the broker had stored already, because the answer to an earlier attempt was lost."""

    def offset(self) -> int | None:
        return None


def test_a_record_that_was_acknowledged_without_an_offset_has_offset_minus_one() -> None:
    assert sent_of(None, Known()) == Sent(RequestOutcome.OK, -1)


WARNING = """
import logging, sys
from pathlib import Path
from milena.testing.chaos import keep_warnings

keep_warnings(Path(sys.argv[1]))
logging.getLogger("aiokafka.producer").warning("Unable to connect")
"""


def test_warnings_of_libraries_are_written_to_a_file(tmp_path: Path) -> None:
    """In a separate process, whose logging no other test has configured."""
    command = [sys.executable, "-c", WARNING, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert "aiokafka.producer WARNING Unable to connect" in (tmp_path / CLIENT_LOG).read_text()
    assert (done.stdout, done.stderr) == ("", "")


def test_an_interrupted_run_is_judged_by_a_command(tmp_path: Path) -> None:
    (tmp_path / HISTORY).write_text("".join(write([Send(("plain", 0), "a", 1, 2, RequestOutcome.OK, 0)])))
    (tmp_path / ABOUT).write_text(json.dumps({"place": "kafka", "seed": 20}))
    program, group, *arguments = shlex.split(judging_of(tmp_path))
    assert (program, group) == ("milena", "history")
    assert history.main(arguments) == 0
    assert json.loads((tmp_path / "report.json").read_text())["about"] == {"place": "kafka", "seed": 20}


def test_a_cluster_is_closed_even_if_its_logs_cannot_be_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Place:
        closed = False

        def use(self, libraries: object) -> None: ...

        async def keep(self, folder: Path) -> None:
            raise OSError("no space left on device")

        async def close(self) -> None:
            self.closed = True

    place = Place()

    async def opened(folder: Path, port: int, tier: str) -> Any:
        return place

    async def failed(*_: object) -> Any:
        raise TimeoutError

    monkeypatch.setattr("milena.testing.chaos.run", failed)
    with pytest.raises(OSError, match="no space"):
        asyncio.run(run_at(opened, Task("here", Order(1, 1), tmp_path, ""), lambda _: []))
    assert place.closed
