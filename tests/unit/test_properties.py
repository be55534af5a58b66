"""Property tests see the same examples in each run, whatever ran before them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.properties import EXPLORE


def drawn() -> list[tuple[int, str]]:
    seen: list[tuple[int, str]] = []

    @given(st.integers(), st.text())
    def look(number: int, text: str) -> None:
        seen.append((number, text))

    look()
    return seen


@pytest.mark.skipif(EXPLORE > 0, reason="exploring: the examples are random")
def test_examples_stay_the_same_when_other_modules_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = drawn()
    file = tmp_path / "many_constants.py"
    file.write_text("\n".join(f"N{n} = 4711{n}\nT{n} = 'some text {n}'" for n in range(100)))
    spec = importlib.util.spec_from_file_location("many_constants", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "many_constants", module)
    assert drawn() == before
