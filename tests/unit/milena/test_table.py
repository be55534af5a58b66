"""Control characters in names do not break a table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from milena.commands import broker


async def test_a_rack_with_a_line_break_is_printed_on_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cluster:
        async def metadata(self) -> Any:
            return SimpleNamespace(topics={})

    async def brokers(_cluster: object) -> list[Any]:
        rack = "a\n  9  active\x1b[2J"
        return [SimpleNamespace(id=1, fenced=False, host="h\r", port=9092, rack=rack)]

    monkeypatch.setattr(broker, "list_brokers", brokers)
    assert await broker.list_all(broker.LIST.parse([]), Cluster()) == 0  # type: ignore[arg-type]
    header, line = capsys.readouterr().out.splitlines()
    assert "rack" in header
    assert line.isprintable() and "a\\n  9  active\\x1b[2J" in line and "h\\r:9092" in line
