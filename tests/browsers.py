"""A headless Chromium of the machine for tests of pages, and what every page has to be in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "chrome-headless-shell")
FLAGS = (
    "--disable-quic",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium of the machine, never downloaded; skips where it or the extra ``browser`` is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the extra 'browser' is not installed")
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser to draw with: none of {', '.join(BROWSERS)} is on the path")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        yield opened
        opened.close()


def assert_fits(page: Any, width: int) -> None:
    """No part reaches beyond the screen, but for what scrolls in a box of its own."""
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    beyond = page.evaluate(
        """width => [...document.querySelectorAll('body *')]
            .filter(one => !one.closest('.scroll') && one.getBoundingClientRect().right > width + 0.5)
            .map(one => one.outerHTML.slice(0, 80))""",
        width,
    )
    assert beyond == []
