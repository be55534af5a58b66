"""Seeds that flip bits of metadata logs and unmount the tier have no violations. Planted bugs are found."""

from __future__ import annotations

import pytest

from milena.controller.log import metadata_log
from milena.lab.chaos.faults import Kind
from milena.lab.chaos.simulated.seeds import run_seed
from milena.lab.invariants.broken import InvariantBroken
from milena.storage.log.segment_swap import finish_swap
from milena.tiered.store.local_tier import LocalTier

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

METADATA = [Kind.FLIPPED_BIT, Kind.CONTROLLER]
UNMOUNTED = [Kind.TIER_UNMOUNTED, Kind.WIPE, Kind.KILL]


def test_flipped_bits_of_metadata_logs_cause_no_violation() -> None:
    report = run_seed(27, faults=METADATA, tier=False, groups=False, steps=16)
    assert report.violations == []
    trace_text = "\n".join(report.trace)
    for text in ("of controller turns over", "of broker-", "copied from /copies/", "the bit turns back", "in spite of"):
        assert text in trace_text, trace_text


def test_an_unmounted_tier_causes_no_violation() -> None:
    report = run_seed(3, faults=UNMOUNTED, tier=True)
    assert report.violations == []
    assert "tier-unmounted" in "\n".join(report.trace)


def test_a_controller_that_skips_damaged_records_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "prepare", lambda disk, folder, start, committed: finish_swap(disk, folder))
    with pytest.raises(InvariantBroken, match=r"it begins at offset .* was committed"):
        run_seed(3, faults=METADATA, tier=False, groups=False)


def test_a_broker_that_fills_an_empty_mount_point_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        LocalTier, "_check_owner", lambda tier: None if tier._disk.exists(tier._root) else tier._start()
    )
    with pytest.raises((InvariantBroken, ExceptionGroup)):
        run_seed(1, faults=UNMOUNTED, tier=True)
