"""Seeds turn bits of metadata logs over and unmount the tier: no harm comes of it. A product that is wrong is found."""

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


def test_bits_of_metadata_logs_turn_over_and_nothing_is_lost() -> None:
    report = run_seed(25, faults=METADATA, tier=False, steps=8)
    assert report.violations == []
    told = "\n".join(report.trace)
    for text in ("of controller turns over", "of broker-", "copied from /copies/", "the bit turns back", "in spite of"):
        assert text in told, told


def test_the_tier_is_not_mounted_and_nothing_is_lost() -> None:
    report = run_seed(3, faults=UNMOUNTED, tier=True)
    assert report.violations == []
    told = "\n".join(report.trace)
    assert "the tier is not mounted on " in told and "the tier is mounted again on " in told


def test_a_controller_that_passes_over_damage_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "prepare", lambda disk, folder, start, committed: finish_swap(disk, folder))
    with pytest.raises(InvariantBroken, match=r"it begins at offset .* was committed"):
        run_seed(1, faults=METADATA, tier=False)


def test_a_broker_that_fills_an_empty_mount_point_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        LocalTier, "_check_owner", lambda tier: None if tier._disk.exists(tier._root) else tier._start()
    )
    with pytest.raises((InvariantBroken, ExceptionGroup)):
        run_seed(1, faults=UNMOUNTED, tier=True)


def test_the_other_faults_of_a_seed_do_not_depend_on_them() -> None:
    """In seeds that have none of them by themselves the digest is the same without them."""
    seed = next(seed for seed in range(8) if not has_faults_apart(seed))
    others = [kind for kind in KINDS if kind not in APART]
    assert run_seed(seed, steps=1).digest == run_seed(seed, steps=1, faults=others).digest
