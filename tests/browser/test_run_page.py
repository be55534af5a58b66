"""The page of a run on a time axis, and plots."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from milena.report.contents import Band, Facts, Plot, Plots, Section, Series, Story, Table
from milena.report.page import page as report_page
from tests.browser.processes import milena

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.conftest import Opener

TRACE: list[tuple[float, str, str]] = [
    (0.0, "3 brokers are ready", "client"),
    (2.0, "kill 1 for 4.0 s", "fault"),
    (2.5, "broker 1 is fenced", "leader"),
    (2.6, "t-0: leader 2, leader epoch 1, ISR 2, 3", "leader"),
    (3.0, "lost write: t-0: milena/t:7 is not in the log", "violation"),
    (6.0, "kill 1 is mended after 4.0 s", "fault"),
    (9.0, "warning log: full", "warning"),
]
STORY: dict[str, Any] = {
    "seconds": 10.0,
    "nodes": [{"id": 1, "name": "broker 1"}, {"id": 2, "name": "broker 2"}, {"id": 1000, "name": "controller"}],
    "brokers": [
        {"at": 0.0, "node": 1, "fenced": False},
        {"at": 0.0, "node": 2, "fenced": False},
        {"at": 2.5, "node": 1, "fenced": True},
        {"at": 7.0, "node": 1, "fenced": False},
    ],
    "faults": [{"kind": "kill", "nodes": [1], "begun": 2.0, "mended": 6.0, "text": "", "effect": "seen"}],
    "partitions": [
        {
            "name": "t-0",
            "states": [
                {"at": 0.0, "leader": 1, "epoch": 0, "isr": [1, 2, 3]},
                {"at": 2.6, "leader": 2, "epoch": 1, "isr": [2, 3]},
            ],
        }
    ],
    "rates": {
        "begun": 0,
        "width": 1,
        "series": [{"name": "acknowledged writes", "unit": "per second", "values": [5, 9, 2, 0, 4, 6, 6, 6, 6, 1]}],
    },
    "violations": [
        {"anomaly": "lost write", "where": "t-0", "text": "milena/t:7 is not in the log", "at": 3.0},
        {"anomaly": "gap", "where": "t-0", "text": "offset 3 is missing", "at": None},
    ],
    "trace": TRACE,
}
PLOTS = Plots(
    "Over time",
    "seconds",
    [
        Plot(
            "Writes",
            "per second",
            [Series("one", [0, 1, 2], [1, 2, 3], "stack"), Series("two", [0, 1, 2], [4, None, 2], "stack")],
        ),
        Plot("Latency", "ms", [Series("p50", [0, 1, 2], [0.1, None, 10.0])], logarithmic=True),
        Plot("Size", "MiB", [Series("a", [0, 1], [3, 4], "bars")]),
    ],
    [Band("kill", 0.5, 1.5, "broker 1")],
)
DAYS = Plots(
    "By day",
    "day",
    [
        Plot(
            "Size",
            "MiB",
            [Series(name, ["2026-11-27", "2026-11-28"], [1, at], "bars") for name, at in (("t", 2), ("u", 5))],
        )
    ],
)


@pytest.fixture
def shown(tmp_path: Path, open_page: Opener) -> Callable[..., Page]:
    """A function that writes a page with these sections and opens it."""

    def show(*sections: Section, place: str = "", **options: Any) -> Page:
        file = tmp_path / "run.html"
        file.write_text(report_page("A run", "2 violations", sections, good=False), encoding="utf-8")
        return open_page(f"{file.as_uri()}{place}", **options)

    return show


def chosen(page: Page) -> str:
    return page.locator("[aria-selected=true] span").last.inner_text()


def test_the_page_opens_at_the_violation(shown: Callable[..., Page]) -> None:
    page = shown(Story(STORY))
    assert chosen(page) == "lost write: t-0: milena/t:7 is not in the log"
    assert page.locator("#place").inner_text() == "Line 5 of 7"


def test_lines_are_stepped_through_by_button_and_key(shown: Callable[..., Page]) -> None:
    page = shown(Story(STORY), place="#line-1")
    assert chosen(page) == "3 brokers are ready"
    page.get_by_role("button", name="Next ▶").click()
    assert chosen(page) == "kill 1 for 4.0 s"
    page.keyboard.press("ArrowRight")
    assert chosen(page) == "broker 1 is fenced"
    page.keyboard.press("f")
    assert chosen(page) == "kill 1 is mended after 4.0 s"
    page.keyboard.press("Shift+F")
    assert chosen(page) == "kill 1 for 4.0 s"
    page.keyboard.press("v")
    assert chosen(page).startswith("lost write")
    page.keyboard.press("Home")
    assert chosen(page) == "3 brokers are ready"
    page.wait_for_url("**#line-1")


def test_the_state_of_the_cluster_is_that_of_the_chosen_line(shown: Callable[..., Page]) -> None:
    page = shown(Story(STORY), place="#line-4")
    state = page.locator(".state").inner_text()
    assert "Faults: kill 1" in state and "Fenced: broker 1" in state
    assert page.locator(".state tbody tr").inner_text().split("\t") == ["• t-0", "2", "1", "2, 3"]
    page.keyboard.press("Home")
    assert page.locator(".state tbody tr").inner_text().split("\t") == ["• t-0", "1", "0", "1, 2, 3"]


def test_the_time_axis_names_faults_leaders_and_fenced_brokers(shown: Callable[..., Page]) -> None:
    page = shown(Story(STORY))
    assert page.locator(".timeline svg").get_attribute("aria-label") == "10 seconds; faults: 1, violations: 2"
    titles = page.locator(".timeline title").all_text_contents()
    assert "kill of 1, 2.000 to 6.000 s; seen" in titles
    assert "broker 1: ✗ fenced from 2.500 to 7.000 s" in titles
    assert "t-0: 2 leads, ISR 2 3, leader epoch 1, 2.600 to 10.000 s" in titles
    assert "acknowledged writes: at most 9 per second" in titles
    texts = page.locator(".timeline text").all_text_contents()
    assert {"kill", "✗ fenced", "2 leads, ISR 2 3", "✗ 1", "✗ 2"} <= set(texts)


def test_a_click_on_the_axis_chooses_the_line_at_that_time(shown: Callable[..., Page]) -> None:
    page = shown(Story(STORY), place="#line-1")
    box = page.locator(".timeline svg").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 150 + (box["width"] - 150) * 0.58, box["y"] + 40)
    assert chosen(page) == "kill 1 is mended after 4.0 s"


def test_zooming_draws_only_the_window(shown: Callable[..., Page]) -> None:
    page = shown(Story(STORY), place="#line-7")
    for _ in range(3):
        page.get_by_role("button", name="Zoom in").click()
    assert page.locator(".zoom .dim").inner_text() == "7.9 to 9.1 s"
    assert page.locator(".item.fault").count() == 0
    page.get_by_role("button", name="Zoom out").click()
    assert page.locator(".zoom .dim").inner_text() == "6.8 to 9.3 s"


def test_a_violation_links_to_its_line(shown: Callable[..., Page]) -> None:
    page = shown(Story(STORY), place="#line-1")
    page.get_by_role("button", name="at 3.000 s").click()
    assert chosen(page).startswith("lost write")


def test_lines_are_filtered_by_text_and_kind(shown: Callable[..., Page]) -> None:
    page = shown(Story(STORY))
    page.get_by_label("Lines with").fill("KILL")
    assert page.locator("#place").inner_text() == "Line 2 of 2"
    page.get_by_label("Lines with").fill("")
    page.get_by_label("kind of lines").select_option("leader")
    assert page.locator(".line").count() == 2


def test_ten_thousand_lines_have_few_elements(shown: Callable[..., Page]) -> None:
    trace = [(at / 1000, f"line {at}", "log") for at in range(10_000)]
    page = shown(Story({**STORY, "trace": trace}))
    page.keyboard.press("End")
    assert chosen(page) == "line 9999"
    assert 0 < page.locator(".line").count() < 80


def test_plots_are_drawn_with_their_legends(shown: Callable[..., Page]) -> None:
    page = shown(PLOTS, DAYS)
    assert page.locator("figure canvas").count() == 4
    assert [one.get_attribute("aria-label") for one in page.locator("figure").all()] == [
        "Writes in per second: one at most 3, two at most 4",
        "Latency in ms: p50 at most 10",
        "Size in MiB: a at most 4",
        "Size in MiB: t at most 2, u at most 5",
    ]
    box = page.locator("figure canvas").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.95, box["y"] + 60)
    values = page.locator("figure").first.locator(".u-legend .u-value").all_inner_texts()
    assert values[1:] == ["3", "2"]
    days = page.locator("figure").last
    days.scroll_into_view_if_needed()
    box = days.locator("canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 60)
    assert days.locator(".u-legend .u-value").all_inner_texts() == ["2026-11-28 00:00:00", "2", "5"]


def test_a_seed_of_the_simulation_is_drawn(
    tmp_path: Path, open_page: Opener, picture: Callable[[Page, str], None]
) -> None:
    file = tmp_path / "seed.html"
    assert milena("sim", "--seed", "3", "--steps", "2", "--html", str(file)).returncode == 0
    page = open_page(file.as_uri())
    assert page.locator(".item.fault").count() > 0
    assert page.locator(".item.leader").count() > 5
    page.keyboard.press("f")
    assert page.locator(".state").inner_text().count("Faults:") == 1
    picture(page, "page-run")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(shown: Callable[..., Page], axe: Callable[[Page], list[str]], scheme: str) -> None:
    table = Table("Operations", ("operation", "count"), [("write", 3)], folded=True)
    assert axe(shown(Story(STORY), PLOTS, table, Facts("The run", {"seed": 3}), scheme=scheme)) == []
