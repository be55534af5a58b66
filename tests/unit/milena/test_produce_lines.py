"""Lines of standard input, as they arrive."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from milena.commands.produce import CHUNK, lines


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"", []),
        (b"\n\na", [b"", b"", b"a"]),
        (b"a\nb\n", [b"a", b"b"]),
        (b"x" * (CHUNK - 1) + b"\n\ny", [b"x" * (CHUNK - 1), b"", b"y"]),
        (b"x" * 3 * CHUNK + b"y\nz", [b"x" * 3 * CHUNK + b"y", b"z"]),
    ],
)
async def test_lines_are_split_wherever_the_chunks_end(data: bytes, wanted: list[bytes], tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_bytes(data)
    with file.open("rb") as opened:
        assert [line async for line in lines(opened.fileno())] == wanted


async def test_the_time_for_a_long_line_grows_with_its_length(tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_bytes(b"x" * 60_000_000)
    with file.open("rb") as opened:
        start = time.process_time()
        assert [len(line) async for line in lines(opened.fileno())] == [60_000_000]
    assert time.process_time() - start < 1  # 5 s and more if each chunk copied the line
