"""Each kind of fault of `milena sim`, alone: it is injected, and nothing that was promised is lost."""

from __future__ import annotations

import pytest

from milena.lab.chaos.faults import Kind
from milena.lab.chaos.plan import TIER, stream_of
from milena.lab.chaos.simulated.seeds import KINDS, run_seed
from milena.lab.histories.faults import Fault
from milena.lab.world.trace import quiet_logs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
FAULTS = 3


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.value)
def test_a_kind_of_fault_is_injected_alone_and_breaks_no_promise(kind: Kind) -> None:
    quiet_logs()
    report = run_seed(3, steps=FAULTS, faults=[kind], tier=stream_of(kind) == TIER, groups=False)
    assert not report.violations
    assert [event.kind for event in report.history if isinstance(event, Fault)] == [kind] * FAULTS
