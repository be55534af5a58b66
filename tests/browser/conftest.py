"""Pages in Chromium: the page of a test records what went wrong in it, and the test fails for that at its end.

Playwright drives the system's Chromium. Without either of them the tests are skipped, but not in CI.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FOLDER: Final = Path(__file__).parent
IMAGES: Final = FOLDER.parents[1] / "docs" / "images"
AXE: Final = FOLDER / "node_modules" / "axe-core" / "axe.min.js"
SERIOUS: Final = ("serious", "critical")
Opener = Callable[..., "Page"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--images", action="store_true", help="renew the pictures of the documentation")


def _lacking(what: str) -> None:
    """Skip the test; in CI, fail it."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(f"needs {what}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without a window. Playwright's event loop runs until the end of the module: what needs a loop of its own
    runs in another process."""
    program = shutil.which("chromium")
    if program is None:
        _lacking("Chromium (apt-get install chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _lacking("Playwright (make setup)")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Opener]:
    """A function that opens a page by its address: ``open_page(url, scheme="dark", width=1300)``. The test fails at its
    end if a page printed an error or a warning to the console, raised one, or loaded something from elsewhere."""
    found: list[str] = []
    contexts = []

    def opened(url: str, *, scheme: str = "light", width: int = 1300, height: int = 900, **options: Any) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if scheme == "dark" else "light",
            reduced_motion="reduce",
            **options,
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda it: found.append(f"console: {it.text}") if it.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: found.append(f"error: {error}"))
        own = url.partition("#")[0] if url.startswith("file:") else "/".join(url.split("/")[:3]) + "/"
        page.on("request", lambda it: None if it.url.startswith(own) else found.append(f"request to {it.url}"))
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert found == []


@pytest.fixture
def picture(request: pytest.FixtureRequest) -> Callable[[Page, str], None]:
    """A function that keeps a picture of what the window shows for the documentation, if ``--images`` is given."""

    def keep(page: Page, name: str) -> None:
        if request.config.getoption("--images"):
            page.screenshot(path=IMAGES / f"{name}.png")

    return keep


@pytest.fixture(scope="session")
def axe() -> Callable[[Page], list[str]]:
    """A function that returns the serious findings of axe, a checker of accessibility, in a page."""
    if not AXE.exists():
        _lacking("axe-core (npm ci --prefix tests/browser)")
    source = AXE.read_text(encoding="utf-8")

    def findings(page: Page) -> list[str]:
        page.evaluate(source)
        result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{one['id']}: {one['help']}: {node['html'][:120]}"
            for one in result["violations"]
            if one["impact"] in SERIOUS
            for node in one["nodes"]
        ]

    return findings
