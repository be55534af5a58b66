"""What the system says of this process."""

from __future__ import annotations

import os
import time

import pytest

from milena.runtime import process_figures

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="there is no /proc here")


def test_memory_in_use_is_part_of_what_is_mapped() -> None:
    assert 1 << 20 < process_figures.resident_bytes() <= process_figures.virtual_bytes()


def test_a_process_began_before_now_and_has_worked_less_than_that() -> None:
    age = time.time() - process_figures.started_at()
    assert age >= -1, "btime is in whole seconds"
    assert process_figures.cpu_seconds() > 0


def test_a_system_that_does_not_tell_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", missing)
    assert (process_figures.resident_bytes(), process_figures.started_at()) == (0, 0.0)
