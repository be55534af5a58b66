"""Seeds that flip bits of metadata logs and unmount the tier have no violations. Planted bugs are found."""

from __future__ import annotations

import pytest

from milena.controller.log import metadata_log
from milena.lab.chaos.seeded.nemesis import APART, KINDS
from milena.lab.chaos.seeded.run import has_faults_apart, run_seed
from milena.lab.invariants.broken import InvariantBroken
from milena.storage.log.segment_swap import finish_swap
from milena.tiered.store.local_tier import LocalTier

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

METADATA = ("metadata", "controller")
UNMOUNTED = ("unmount", "wipe", "kill")


def test_flipped_bits_of_metadata_logs_cause_no_violation() -> None:
    report = run_seed(25, faults=METADATA, tier=False, steps=8)
    assert report.violations == []
    trace_text = "\n".join(report.trace)
    for text in ("of controller turns over", "of broker-", "copied from /copies/", "the bit turns back", "in spite of"):
        assert text in trace_text, trace_text


def test_an_unmounted_tier_causes_no_violation() -> None:
    report = run_seed(3, faults=UNMOUNTED, tier=True)
    assert report.violations == []
    trace_text = "\n".join(report.trace)
    assert "the tier is not mounted on " in trace_text and "the tier is mounted again on " in trace_text


def test_a_controller_that_skips_damaged_records_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "prepare", lambda disk, folder, start, committed: finish_swap(disk, folder))
    with pytest.raises(InvariantBroken, match=r"it begins at offset .* was committed"):
        run_seed(1, faults=METADATA, tier=False)


def test_a_broker_that_fills_an_empty_mount_point_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        LocalTier, "_check_owner", lambda tier: None if tier._disk.exists(tier._root) else tier._start()
    )
    with pytest.raises((InvariantBroken, ExceptionGroup)):
        run_seed(1, faults=UNMOUNTED, tier=True)


def test_the_other_faults_of_a_seed_do_not_depend_on_bit_flips_and_unmounting() -> None:
    """A seed that has none of these faults has the same digest if they are disabled."""
    seed = next(seed for seed in range(8) if not has_faults_apart(seed))
    others = [kind for kind in KINDS if kind not in APART]
    assert run_seed(seed, steps=1).digest == run_seed(seed, steps=1, faults=others).digest
