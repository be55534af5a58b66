"""The console's copy of the state: what it does with deltas, and when it reads the whole state again."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.browser.made_state import START_MS, served

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.conftest import Opener

SOON = 0.05
"""Seconds between deltas."""


def chosen_end(page: Page, name: str) -> int:
    """The log end of the first replica of a partition that the list shows, from its details."""
    page.get_by_role("option", name=re.compile(f"^{name} ")).click()
    details = page.get_by_role("region", name=f"Partition {name}")
    return int(details.locator("tbody tr").first.locator("td").nth(5).inner_text().replace(",", ""))


def test_a_delta_changes_what_the_page_shows(open_page: Opener) -> None:
    with served(20, share=1.0, interval=SOON) as server:
        page = open_page(server.url)
        before = chosen_end(page, "topic-000-1")
        page.wait_for_function(
            "before => Number(document.querySelector('.details td:nth-child(7)').innerText.replace(',', '')) > before",
            arg=before,
        )


def test_after_a_reset_the_whole_state_is_read_again_and_deltas_go_on(open_page: Opener) -> None:
    with served(20, interval=SOON) as server:
        page = open_page(server.url)
        page.locator("[data-connection=live]").wait_for()
        assert server.made.read == 1
        server.reset.set()
        first = page.locator("[data-node=broker-1] p").first
        until(page, lambda: server.made.read == 2)
        before = server.made.seq
        until(page, lambda: server.made.seq > before + 2)
        assert "broker epoch 13" in first.inner_text()
        page.locator("[data-connection=live]").wait_for()


def test_a_list_has_elements_for_the_rows_in_view_only(open_page: Opener) -> None:
    with served(1_000, interval=SOON) as server:
        page = open_page(server.url)
        box = page.get_by_role("listbox", name="Partitions")
        box.get_by_role("option").first.wait_for()
        assert box.get_by_role("option").count() < 60
        assert box.get_by_role("option").first.get_attribute("aria-setsize") == "1000"
        box.evaluate("box => { box.scrollTop = box.scrollHeight }")
        page.get_by_role("option", name=re.compile("^topic-019-49 ")).wait_for()
        assert box.get_by_role("option").count() < 60


def test_the_filter_leaves_the_partitions_whose_names_contain_a_text(open_page: Opener) -> None:
    with served(120, interval=SOON) as server:
        page = open_page(server.url)
        page.get_by_role("searchbox", name="Name").fill("topic-001-1")
        page.get_by_text("11 of 120 partitions").wait_for()
        page.get_by_label("Show").first.select_option("without a leader")
        page.get_by_text("0 of 120 partitions").wait_for()


def test_a_failing_disk_is_listed_without_a_button_because_no_command_ends_it(open_page: Opener) -> None:
    with served(20) as server:
        server.made.faults = [{"command": "fail_disk", "path": "/d"}, {"command": "jump_clock", "ms": 5}]
        page = open_page(f"{server.url}#/faults")
        active = page.get_by_role("region", name="Active faults")
        disk = active.get_by_text("broker-1: disk fails (path=/d), until the node is restarted")
        disk.wait_for()
        assert disk.get_by_role("button").count() == 0
        assert active.get_by_role("button").count() == 1
        active.get_by_role("button", name="End broker-1").wait_for()


def test_nodes_without_milena_up_have_no_buttons_for_their_processes(open_page: Opener) -> None:
    with served(20) as server:
        page = open_page(server.url)
        page.get_by_role("button", name="Pause broker-1").wait_for()
        server.made.directory = None
        page.reload()
        card = page.locator("[data-node=broker-1]")
        card.get_by_role("link", name="Faults of broker-1").wait_for()
        assert card.get_by_role("button").count() == 0


def transactional_id(state: str, start_ms: int, **fields: Any) -> dict[str, Any]:
    return {
        "state": state, "producer_id": 7, "producer_epoch": 1, "start_ms": start_ms, "update_ms": start_ms,
        "timeout_ms": 60_000, "partitions": 2, "pending": None, **fields,
    }  # fmt: skip


def test_transactional_ids_are_listed_oldest_first_and_follow_deltas(open_page: Opener) -> None:
    with served(20, interval=SOON) as server:
        ids = {
            "late": transactional_id("Ongoing", START_MS - 5_000, timeout_ms=1 << 31),
            "ended": transactional_id("CompleteCommit", START_MS),
            "first": transactional_id("Ongoing", START_MS - 90_000, pending="PrepareAbort"),
        }
        counts = {"Ongoing": 2, "CompleteCommit": 99_998}
        server.made.transactions = {"broker-1": {"counts": counts, "total": 100_000, "loading": 3, "ids": ids}}
        page = open_page(f"{server.url}#/transactions")
        rows = page.get_by_role("group", name="Table of transactional ids").locator("tbody tr")
        rows.first.wait_for()
        assert [row.split()[0] for row in rows.all_inner_texts()] == ["first", "late", "ended"]
        assert "◌ PrepareAbort" in rows.first.inner_text()
        assert "past its timeout" in rows.first.inner_text()
        assert "past its timeout" not in rows.nth(1).inner_text()
        page.get_by_text("3 of 100,000 ids, 3 partitions are loading").wait_for()
        page.get_by_role("status", name="Transactional ids by state").get_by_text("✓ CompleteCommit 99,998").wait_for()
        changes = {"first": None, "new": transactional_id("PrepareCommit", START_MS)}
        server.made.changed_transactions = {
            "broker-1": {"counts": counts, "total": 100_000, "loading": 0, "ids": changes}
        }
        rows.filter(has_text="new").wait_for()
        assert [row.split()[0] for row in rows.all_inner_texts()] == ["late", "new", "ended"]
        page.get_by_role("searchbox", name="Id").fill("e")
        page.get_by_role("combobox", name="State").select_option("PrepareCommit")
        page.get_by_text("1 of 100,000 ids").wait_for()
        gone = {"counts": {}, "total": 0, "loading": 0, "ids": dict.fromkeys(["late", "new", "ended"])}
        server.made.changed_transactions = {"broker-1": gone}
        page.get_by_text("There is no transactional id.").wait_for()


def until(page: Page, holds: Callable[[], bool]) -> None:
    """Let the page run until something holds at the server."""
    for _ in range(600):
        if holds():
            return
        page.evaluate("() => new Promise(requestAnimationFrame)")
    raise AssertionError("it does not come to hold")
