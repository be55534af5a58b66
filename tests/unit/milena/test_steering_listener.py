"""The lab socket of a node under `milena up --lab`, which only its owner may use."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from milena.runtime.process import real_runtime
from milena.steering.listener import CommandListener


@pytest.fixture
def nothing_masked() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("nothing_masked")
async def test_a_lab_socket_is_accessible_only_to_its_owner_from_its_creation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes_at_bind: list[int] = []
    bind = socket.socket.bind

    class Watched(socket.socket):
        def bind(self, address: str) -> None:  # type: ignore[override]
            bind(self, address)
            modes_at_bind.append(stat.S_IMODE(os.stat(address).st_mode))

    monkeypatch.setattr(socket, "socket", Watched)
    path = tmp_path / "broker-1.sock"
    listener = CommandListener(str(path), {}, real_runtime().new_tasks("commands"))
    await listener.start()
    assert modes_at_bind == [0o600]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    mask = os.umask(0)
    assert mask == 0, "the process's own mask is as it was"
    await listener.stop()
    assert not path.exists()
