"""The console's page in headless Chromium, with a made state that moves: first view, and the longest task of each kind.

A made state costs the machine less than a cluster with as many partitions, so the figures are the browser's own.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from benchmarks.peers import Peer
from benchmarks.sizes import Sizes
from benchmarks.turns import NotMeasured, Rounds
from tests.browser.made_state import served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SECONDS: Final = 10
SETTLED_MS: Final = 3_000
SHARE: Final = 0.3
"""The share of the partitions that each delta changes; there are two deltas a second."""
WATCH: Final = """
window.tasks = [];
new PerformanceObserver((list) => tasks.push(...list.getEntries().map((entry) => entry.duration)))
  .observe({ type: "longtask", buffered: true });
new MutationObserver(() => {
  if (!window.seen && document.querySelector(".partition canvas")?.width > 300) window.seen = performance.now();
}).observe(document, { subtree: true, childList: true, attributes: true });
"""
LONGEST: Final = "Math.max(0, ...tasks.splice(0))"
"""In milliseconds; 0: all were shorter than 50, below which the browser reports none."""
SCROLL: Final = """(seconds) => new Promise((done) => {
  const box = document.querySelector(".partitions .long-list");
  const end = performance.now() + 1000 * seconds;
  const most = box.scrollHeight - box.clientHeight;
  let top = 0;
  const step = () => {
    top = (top + 90) % most;
    box.scrollTop = top;
    if (performance.now() < end) requestAnimationFrame(step);
    else done();
  };
  step();
})"""


def console(_peer: Peer, _sizes: Sizes) -> Rounds:
    """1,000 partitions while the list scrolls, and 10,000 that are updated. Raises NotMeasured without a browser."""
    with chromium() as browser:
        for _ in range(3):
            yield _thousand(browser) | _ten_thousand(browser)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser, for the block. Raises NotMeasured if the machine has none."""
    program = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise NotMeasured("no Playwright") from None
    if program is None:
        raise NotMeasured("no Chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def _thousand(browser: Browser) -> dict[str, float]:
    with served(1_000, SHARE) as server:
        page = _opened(browser, server.url)
        page.evaluate(SCROLL, SECONDS)
        longest: float = page.evaluate(LONGEST)
        page.context.close()
    return {"console_1000_scroll_task_ms": longest}


def _ten_thousand(browser: Browser) -> dict[str, float]:
    with served(10_000, SHARE) as server:
        page = _opened(browser, server.url)
        first: float = page.evaluate("seen")
        page.wait_for_timeout(1000 * SECONDS)
        longest: float = page.evaluate(LONGEST)
        page.context.close()
    return {"console_10000_first_view_s": first / 1000, "console_10000_update_task_ms": longest}


def _opened(browser: Browser, url: str) -> Page:
    """The page, some time after its first view, without the tasks so far."""
    page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
    page.add_init_script(WATCH)
    page.goto(url)
    page.wait_for_function("window.seen")
    page.wait_for_timeout(SETTLED_MS)
    page.evaluate(LONGEST)
    return page
