"""No order of commands breaks an invariant: neither of the controller's records, nor of the brokers that take them."""

from __future__ import annotations

import pytest

from tests.unit.controller.random_commands import RandomCommands

STEPS = 400


@pytest.mark.parametrize("seed", range(40))
def test_random_commands_break_no_invariant(seed: int) -> None:
    commands = RandomCommands(seed)
    for _ in range(STEPS):
        commands.step()
