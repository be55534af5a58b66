"""The command of chaos, and what its adapters make of answers that no cluster gives on demand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from milena.lab.chaos.clients import Sent
from milena.lab.histories.events import RequestOutcome
from tests.chaos.__main__ import SAID, again_of
from tests.chaos.clients.confluent import sent_of

ROOT = Path(__file__).parents[3]


def test_the_command_that_runs_it_again_has_a_new_folder_for_its_report() -> None:
    again = "python -m tests.chaos --on processes --seed 3 --unsafe"
    for report in (["--report", "/tmp/one"], ["--report=/tmp/one"], []):
        assert again_of(["--on", "processes", *report, "--seed", "3", "--unsafe"]) == again


class Known:
    """A record that the broker knew already: an answer to an earlier try was lost."""

    def offset(self) -> int | None:
        return None


def test_a_record_that_was_acknowledged_without_an_offset_has_an_unknown_one() -> None:
    assert sent_of(None, Known()) == Sent(RequestOutcome.OK, -1)


WARNING = """
import logging, sys
from pathlib import Path
from tests.chaos.__main__ import keep_warnings

keep_warnings(Path(sys.argv[1]))
logging.getLogger("aiokafka.producer").warning("Unable to connect")
"""


def test_what_libraries_warn_of_goes_to_a_file(tmp_path: Path) -> None:
    """In a process of its own, whose logging nobody else has set up."""
    command = [sys.executable, "-c", WARNING, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert "aiokafka.producer WARNING Unable to connect" in (tmp_path / SAID).read_text()
    assert (done.stdout, done.stderr) == ("", "")
