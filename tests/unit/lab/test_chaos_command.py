"""The command of chaos, and what its adapters make of answers that no cluster gives on demand."""

from __future__ import annotations

from milena.lab.chaos.clients import Sent
from milena.lab.histories.events import RequestOutcome
from tests.chaos.__main__ import again_of
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
