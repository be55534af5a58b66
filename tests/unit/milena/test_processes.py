"""The state of a process by its id."""

from __future__ import annotations

import builtins
import errno
import os

import pytest

from milena.up.processes import is_paused, runs


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="there is no /proc here")
def test_a_process_that_ends_during_the_check_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ending:
        def __enter__(self) -> Ending:
            return self

        def __exit__(self, *error: object) -> None:
            return

        def read(self) -> str:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))

    monkeypatch.setattr(builtins, "open", lambda path: Ending())
    assert not runs(os.getpid())
    assert not is_paused(os.getpid())


def test_the_current_process_runs() -> None:
    assert runs(os.getpid())
    assert not is_paused(os.getpid())
