"""Who has to go when what all connections hold together is too much: the hoarder, not the newcomer."""

from __future__ import annotations

import pytest

from milena.protocol.invariants import BrokenInvariant
from milena.protocol.requests.memory_budget import (
    EXTRA_EVICTION_FRACTION,
    MIN_PROGRESS_BYTES,
    PROGRESS_INTERVAL,
    STALL_SECONDS,
    BudgetExceeded,
    BudgetShare,
    MemoryBudget,
)

MB = 10**6


class Site:
    """A budget with a clock moved by hand, and the names of those that had to go."""

    def __init__(self, limit: int) -> None:
        self.now = 0.0
        self.gone: list[str] = []
        self.budget = MemoryBudget(limit, lambda: self.now)

    def share(self, name: str) -> BudgetShare:
        return BudgetShare(self.budget, lambda _reason: self.gone.append(name))

    def sends(self, share: BudgetShare, rate: float, seconds: float) -> None:
        """The peer sends so many bytes each second, and all of them are held."""
        for _ in range(round(seconds)):
            self.now += 1
            share.transferred(round(rate))
            share.hold(share.held + round(rate))


def test_five_hoarders_of_94_mb_do_not_shut_out_a_small_produce() -> None:
    site = Site(512 * MB)
    for number in range(5):
        site.share(f"hoarder {number}").hold(94 * MB)
        site.now += 0.1
    newcomer = site.share("newcomer")
    for size in range(100_000, 1_000_000, 100_000):
        newcomer.hold(size)
    site.share("other").hold(60 * MB)
    assert site.gone == ["hoarder 0"]
    assert site.budget.used <= site.budget.limit


def test_a_byte_now_and_then_is_no_progress() -> None:
    site = Site(100 * MB)
    slow = site.share("slow")
    site.sends(slow, 4 * MB, 10)
    trickler = site.share("trickler")
    trickler.hold(20 * MB)
    for _ in range(100):
        site.now += 0.5
        trickler.transferred(1)
        slow.transferred(4 * MB // 10)
    assert trickler.eviction_priority(site.now) > slow.eviction_priority(site.now)
    site.share("newcomer").hold(45 * MB)
    assert site.gone == ["trickler"], "although the other one holds more, and has for longer"


def test_a_stalled_connection_is_closed_before_one_with_progress() -> None:
    site = Site(100 * MB)
    still = site.share("still")
    still.hold(10 * MB)
    site.now += STALL_SECONDS
    large = site.share("large")
    site.sends(large, 20 * MB, 4)
    site.share("newcomer").hold(15 * MB)
    assert site.gone == ["still"]


def test_where_all_get_on_the_most_bytes_for_the_longest_time_go() -> None:
    site = Site(100 * MB)
    for name, size in (("first", 40 * MB), ("large", 50 * MB), ("last", 5 * MB)):
        site.share(name).hold(size)
        site.now += 0.1
    site.share("newcomer").hold(20 * MB)
    assert site.gone == ["first"]


def test_who_asks_for_the_most_has_to_go_itself() -> None:
    site = Site(100 * MB)
    site.share("other").hold(10 * MB)
    greedy = site.share("greedy")
    greedy.hold(85 * MB)
    site.now += 1
    with pytest.raises(BudgetExceeded, match="no other connection holds more for longer"):
        greedy.hold(95 * MB)
    assert site.gone == []
    with pytest.raises(BudgetExceeded, match="more than 100000000 bytes at once"):
        site.share("huge").hold(100 * MB + 1)


def test_room_is_made_for_more_than_one_small_request_where_many_stand_still() -> None:
    site = Site(1000)
    for number in range(1000):
        site.share(f"{number}").hold(1)
    site.now += STALL_SECONDS + 1
    site.share("newcomer").hold(1)
    assert len(site.gone) == 1 + 1000 // EXTRA_EVICTION_FRACTION


def test_a_closed_share_holds_no_bytes_and_cannot_hold_any() -> None:
    site = Site(100)
    first, second = site.share("first"), site.share("second")
    first.hold(80)
    site.now += 1
    second.hold(80)
    assert (first.held, site.budget.used, site.gone) == (0, 80, ["first"])
    first.hold(50)
    first.close()
    assert site.budget.used == 80


def test_a_peer_that_reads_between_two_calls_is_not_stalled() -> None:
    site = Site(100)
    left = [60]
    takes = BudgetShare(site.budget, lambda _reason: site.gone.append("takes"), lambda: left[0])
    takes.hold(60)
    rests = BudgetShare(site.budget, lambda _reason: site.gone.append("rests"), lambda: 30)
    rests.hold(30)
    site.now += STALL_SECONDS + 1
    left[0] = 50
    site.share("newcomer").hold(40)
    assert site.gone == ["rests"]
    assert takes.held == 50


def test_an_unfinished_request_is_overdue_that_gained_little_in_a_minute_though_there_is_room() -> None:
    site = Site(100 * MB)
    trickles, slow, new = (site.share(name) for name in ("trickles", "slow", "new"))
    trickles.hold(1000)
    slow.hold(1000)
    for _ in range(round(PROGRESS_INTERVAL)):
        site.now += 1
        trickles.transferred(1)
        slow.transferred(MIN_PROGRESS_BYTES // 60 + 1)
    new.hold(1000)
    assert [one.overdue() for one in (trickles, slow, new)] == [True, False, False]


def test_the_time_that_we_did_not_read_does_not_count() -> None:
    site = Site(100 * MB)
    held_up = site.share("held up")
    held_up.hold(1000)
    site.now += PROGRESS_INTERVAL
    held_up.restart_progress_timer()
    assert not held_up.overdue()
    site.now += PROGRESS_INTERVAL
    assert held_up.overdue()


def test_no_more_is_given_back_than_is_held() -> None:
    site = Site(MB)
    share = site.share("a")
    share.hold(1000)
    site.budget.used = 1
    with pytest.raises(BrokenInvariant, match="1 bytes of 1000000 are held, 1000 become 0"):
        share.close()
