"""The page of one run of a scenario."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from milena.report.embedded import embedded
from tests.browser.processes import milena
from tests.browser.runs import replica, request, row, run_of, segment, step_of, table

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.conftest import Opener

MANY = 1000
OLD = [(0, 0, 0), (1, 1, 0), (2, 2, 0)]
NEW = [(2, 4, 2), (3, 5, 2)]
REFUSED = request(2.0, "B", "A", "Fetch", "offset 0, no epoch", "OFFSET_MOVED_TO_TIERED_STORAGE", error=True)
ACCEPTED = "Kafka starts a segment's first epoch at the segment's base offset"
FIRST = step_of(
    "A has three messages",
    quote="Broker A is the leader.",
    actions=["start [A, B]"],
    replicas={"A": replica(OLD, role="leader"), "B": replica(OLD[:2])},
    tables=[table("A", row("0: msg 0 LE-0", "0: msg 0 LE-0", "same"))],
)
SECOND = step_of(
    "B takes two messages",
    events=[REFUSED, request(2.1, "A", "controller", "AlterPartition", "[A]", "NONE", error=False)],
    replicas={
        "A": replica(OLD, role=None, stopped=True, in_isr=None),
        "B": replica([*OLD[:2], *NEW], role="leader", high_watermark=4),
    },
    segments=[segment("seg-0-1", OLD[:2])],
    tables=[
        table(
            "B",
            row("2: msg 4 LE-2", "2: msg 2 LE-0", "differs"),
            row("epochs 0: 0", "epochs 0: 1", "accepted", ACCEPTED),
        )
    ],
    wrong="B: offset 2 differs",
)


@pytest.fixture
def shown(tmp_path: Path, open_page: Opener) -> Callable[..., Page]:
    """A function that writes the page of a run and opens it."""

    def show(run: dict[str, Any], place: str = "", **options: Any) -> Page:
        file = tmp_path / "run.html"
        file.write_text(embedded("A run", "scenario.js", {"scenario-run": run}), encoding="utf-8")
        return open_page(f"{file.as_uri()}{place}", **options)

    return show


def title(page: Page) -> str:
    return page.locator("#step-title").inner_text()


def test_the_buttons_and_the_keys_step_forward_and_back(shown: Callable[..., Page]) -> None:
    page = shown(run_of([FIRST, SECOND]))
    assert title(page) == "1. A has three messages"
    assert page.get_by_role("button", name="Back").is_disabled()
    page.get_by_role("button", name="Next").click()
    assert title(page) == "2. B takes two messages"
    assert page.get_by_role("button", name="Next").is_disabled()
    page.get_by_role("button", name="Back").click()
    assert title(page) == "1. A has three messages"
    page.keyboard.press("ArrowRight")
    assert title(page) == "2. B takes two messages"
    page.keyboard.press("ArrowRight")
    assert title(page) == "2. B takes two messages"
    page.keyboard.press("Home")
    assert title(page) == "1. A has three messages"
    page.keyboard.press("End")
    assert page.locator("#place").inner_text() == "Step 2 of 2"


def test_a_step_of_the_list_is_chosen_with_the_keyboard_alone(shown: Callable[..., Page]) -> None:
    page = shown(run_of([FIRST, SECOND]))
    steps = page.get_by_role("listbox", name="steps")
    steps.focus()
    page.keyboard.press("ArrowDown")
    assert title(page) == "2. B takes two messages"
    assert steps.locator("[aria-selected=true]").inner_text().endswith("2. B takes two messages")
    assert "failed" in steps.locator("[aria-selected=true]").inner_text()


def test_the_address_names_the_step(shown: Callable[..., Page]) -> None:
    page = shown(run_of([FIRST, SECOND]), "#step-2")
    assert title(page) == "2. B takes two messages"
    page.keyboard.press("ArrowLeft")
    page.wait_for_url("**#step-1")


def test_a_step_shows_the_sentence_of_the_document(shown: Callable[..., Page]) -> None:
    page = shown(run_of([FIRST, SECOND]))
    assert page.locator("blockquote").inner_text().split("\n") == ["Broker A is the leader.", "", "KIP-405"]
    page.keyboard.press("ArrowRight")
    assert page.locator("blockquote").count() == 0


def test_a_log_is_labelled_by_leader_epoch_and_says_its_offsets(shown: Callable[..., Page]) -> None:
    page = shown(run_of([FIRST, SECOND]), "#step-2")
    bars = page.locator("svg [role=img]")
    assert [bars.nth(at).get_attribute("aria-label") for at in range(3)] == [
        "A, stopped: offsets 0 to 2 in LE-0; log start 0; local log start 0; high watermark 0; log end 3",
        "B, leader, in ISR: offsets 0 to 1 in LE-0; offsets 2 to 3 in LE-2; log start 0; local log start 0; "
        "high watermark 4 (moved); log end 4 (moved)",
        "seg-0-1, copy segment finished: offsets 0 to 1 in LE-0",
    ]
    texts = bars.nth(1).locator("text").all_text_contents()
    assert [text for text in texts if text.startswith("LE-")] == ["LE-0", "LE-2"]
    assert [text for text in texts if "msg" in text] == ["msg 0", "msg 1", "+msg 4", "+msg 5"]
    assert bars.nth(1).locator(".record.epoch-2").count() == 2


def test_changes_since_the_previous_step_are_sentences(shown: Callable[..., Page]) -> None:
    page = shown(run_of([FIRST, SECOND]), "#step-2")
    assert page.locator(".changes li").all_inner_texts() == [
        "A: leader, in ISR → stopped",
        "B: follower, in ISR → leader, in ISR",
        "B: new records at offsets 2 to 3",
        "B: high watermark 0 → 4",
        "B: log end 2 → 4",
        "tier: seg-0-1 is new, offsets 0 to 1",
    ]


def test_requests_and_errors_between_nodes(shown: Callable[..., Page]) -> None:
    page = shown(run_of([FIRST, SECOND]), "#step-2")
    rows = page.get_by_role("listitem").filter(has=page.locator(".lanes"))
    assert rows.locator(".text").all_inner_texts() == [
        "B -> A Fetch offset 0, no epoch: ✗ OFFSET_MOVED_TO_TIERED_STORAGE",
        "A -> controller AlterPartition [A]: NONE",
    ]
    assert rows.nth(0).locator(".error").count() == 1
    assert rows.nth(1).locator(".error").count() == 0
    assert page.locator(".heads text").all_text_contents() == ["A", "B", "controller"]


def test_tables_mark_differences_and_explain_accepted_ones(shown: Callable[..., Page]) -> None:
    page = shown(run_of([FIRST, SECOND]), "#step-2")
    assert page.locator("[data-table=B] tr.differs").inner_text().split("\t")[:2] == ["2: msg 4 LE-2", "2: msg 2 LE-0"]
    assert "≠ differs" in page.locator("[data-table=B] tr.differs").inner_text()
    assert ACCEPTED in page.locator("[data-table=B] tr.accepted").inner_text()
    assert page.locator("#wrong").inner_text() == "✗ B: offset 2 differs"


def test_a_thousand_steps_have_few_elements(shown: Callable[..., Page]) -> None:
    page = shown(run_of([FIRST, SECOND] * (MANY // 2)))
    page.keyboard.press("End")
    assert page.locator("#place").inner_text() == f"Step {MANY} of {MANY}"
    steps = page.get_by_role("listbox", name="steps")
    assert steps.locator("[aria-selected=true]").inner_text().endswith(f"{MANY}. B takes two messages")
    assert 0 < steps.get_by_role("option").count() < 60
    assert page.locator("#page *").count() < 1000


def test_a_step_with_thousands_of_requests_has_rows_for_those_in_view(shown: Callable[..., Page]) -> None:
    page = shown(run_of([step_of("much traffic", events=[REFUSED] * 5000)]))
    assert 0 < page.locator(".exchange:not(.heads)").count() < 60


def test_each_step_of_a_real_run_is_drawn(
    tmp_path: Path, open_page: Opener, picture: Callable[[Page, str], None]
) -> None:
    file = tmp_path / "run.html"
    assert milena("scenario", "run", "kip405_5", "--quiet", "--html", str(file)).returncode == 0
    page = open_page(file.as_uri(), height=1250)
    titles, refusals = [title(page)], 0
    while page.get_by_role("button", name="Next").is_enabled():
        page.keyboard.press("ArrowRight")
        titles.append(title(page))
        assert page.locator("svg [role=img]").count() >= 2
        refused = page.locator(".exchange").filter(has_text="OFFSET_MOVED_TO_TIERED_STORAGE")
        if refused.count() > 0 and refusals == 0:
            picture(page, "page-scenario")
        refusals += refused.count()
    assert [text.partition(".")[0] for text in titles] == [str(number) for number in range(1, len(titles) + 1)]
    assert page.locator("#place").inner_text() == f"Step {len(titles)} of {len(titles)}"
    assert refusals > 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(shown: Callable[..., Page], axe: Callable[[Page], list[str]], scheme: str) -> None:
    page = shown(run_of([FIRST, SECOND]), "#step-2", scheme=scheme)
    assert axe(page) == []
