"""The command of chaos, and what its adapters make of answers that no cluster gives on demand."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from milena.lab.chaos.clients import Sent
from milena.lab.histories.events import RequestOutcome
from tests.chaos.__main__ import SAID, again_of, keep_warnings
from tests.chaos.clients.confluent import sent_of


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


def test_what_libraries_warn_of_goes_to_a_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    keep_warnings(tmp_path)
    logging.getLogger("aiokafka.producer").warning("Unable to connect")
    logging.captureWarnings(False)
    for handler in logging.root.handlers:
        handler.close()
    assert "aiokafka.producer WARNING Unable to connect" in (tmp_path / SAID).read_text()
    assert capfd.readouterr() == ("", "")
