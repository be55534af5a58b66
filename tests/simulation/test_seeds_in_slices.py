"""Seeds in which every request counts as large: requests are decoded, handled and answered in slices of one element."""

from __future__ import annotations

import pytest

from milena.broker.apis import fetch, list_offsets, produce
from milena.broker.reading import fetching
from milena.broker.replica import checked_appends
from milena.lab.chaos.simulated.seeds import run_seed
from milena.node.serving import cooperative_requests, dispatch
from milena.protocol.requests import fetch_request

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "PLAIN_BODY_BYTES", 0)
    monkeypatch.setattr("milena.protocol.cooperative.YieldBudget.__init__.__defaults__", (1,))
    monkeypatch.setattr(fetch, "MAX_IMMEDIATE_ELEMENTS", 0)
    monkeypatch.setattr(fetch_request, "_read_one_partition", lambda data: None)
    monkeypatch.setattr(fetching, "PARTITIONS_PER_YIELD", 1)
    monkeypatch.setattr(produce, "MAX_IMMEDIATE_ELEMENTS", 0)
    monkeypatch.setattr(produce, "PARTITIONS_PER_YIELD", 1)
    monkeypatch.setattr(checked_appends, "RECORDS_BEFORE_FIRST_YIELD", 20)
    monkeypatch.setattr(list_offsets, "PARTITIONS_PER_YIELD", 1)


@pytest.mark.parametrize("seed", [11, 44])
def test_seeds_with_slices_of_one_element_have_no_violations_and_are_repeatable(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = 0
    queue = cooperative_requests.CooperativeRequests.queue

    def counted(*given: object) -> None:
        nonlocal large
        large += 1
        queue(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(cooperative_requests.CooperativeRequests, "queue", counted)
    found = run_seed(seed)
    assert found.violations == [] and large > 100
    assert run_seed(seed).digest == found.digest
