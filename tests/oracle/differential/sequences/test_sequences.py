"""Random sequences compared with Kafka: a fixed seed by default, or the seed in an environment variable."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.oracle.differential.sequences.explore import explore
from tests.oracle.differential.sequences.run import Player
from tests.oracle.differential.sequences.script import read, written
from tests.oracle.differential.sides import Side

SEQUENCES: Final = int(os.environ.get("MILENA_SEQUENCES") or 150)
SEED: Final = os.environ.get("MILENA_SEED") or "1"
"""A number, or ``random``."""
SCRIPT: Final = os.environ.get("MILENA_SCRIPT")
"""A file with one script in the form of a report. Only this script is played."""


@pytest.fixture
def player(sides: tuple[Side, Side]) -> Iterator[Player]:
    found = Player(sides)
    yield found
    found.close()


@pytest.mark.timeout(0)
def test_both_sides_answer_random_sequences_alike(player: Player, capsys: pytest.CaptureFixture[str]) -> None:
    if SCRIPT:
        steps = read(Path(SCRIPT).read_text())
        found = player.play(steps)
        assert not found.differs, "\n".join([*found.lines, written(steps)])
        return
    seed = random.randrange(1 << 32) if SEED == "random" else int(SEED)

    def say(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}", flush=True)

    report = explore(player, seed, range(SEQUENCES), say)
    say(str(report).partition("\n")[0])
    assert not report.differences, str(report)
