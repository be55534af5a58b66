"""Seeds in which every request counts as large: all is decoded, handled and answered in slices of one element."""

from __future__ import annotations

import pytest

from milena.broker.apis import fetch, list_offsets, produce
from milena.broker.reading import fetching, large_fetch
from milena.broker.replica import checked_appends
from milena.lab.load.seeded import run_seed
from milena.node.serving import dispatch
from milena.protocol.requests import fetch_request


@pytest.fixture(autouse=True)
def slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "AT_ONCE", 0)
    monkeypatch.setattr("milena.protocol.schemas.steps.Pace.__init__.__defaults__", (1,))
    monkeypatch.setattr(fetch, "FEW", 0)
    monkeypatch.setattr(fetch_request, "_read_news", lambda data: None)
    monkeypatch.setattr(fetching, "STEP", 1)
    monkeypatch.setattr(produce, "FEW", 0)
    monkeypatch.setattr(produce, "A_SLICE", 1)
    monkeypatch.setattr(checked_appends, "AT_ONCE", 20)
    monkeypatch.setattr(list_offsets, "SLICE", 1)


@pytest.mark.parametrize("seed", [11, 44])
def test_nothing_is_lost_and_a_seed_is_repeatable(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    large = 0
    run = large_fetch.LargeFetch.run

    def counted(*given: object) -> object:
        nonlocal large
        large += 1
        return run(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(large_fetch.LargeFetch, "run", counted)
    found = run_seed(seed)
    assert found.violations == [] and large > 100
    assert run_seed(seed).digest == found.digest
