"""Headless browsers of the machine for tests of pages, and what every page has to be in them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
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


class Firefox:
    """A headless Firefox with one page, driven by WebDriver BiDi, which Firefox itself speaks on a socket."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.said: list[str] = []
        """What the console of the page says, and the addresses that it asks for."""
        self.last = 0
        self("session.new", capabilities={})
        self("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])
        self.context = self("browsingContext.getTree")["contexts"][0]["context"]

    def __call__(self, method: str, **params: Any) -> Any:
        """Send a command and return its result; what is told meanwhile of the page is kept."""
        self.last += 1
        self.socket.send(json.dumps({"id": self.last, "method": method, "params": params}))
        while (message := json.loads(self.socket.recv(timeout=120))).get("id") != self.last:
            told = message["params"]
            url = told.get("request", {}).get("url")
            if url is None or url.startswith(("http", "ws")):  # it tells of no files
                self.said.append(url or told.get("text"))
        assert message["type"] == "success", message
        return message["result"]

    def open(self, path: Path, width: int) -> None:
        """Show a file in a window of this width."""
        self("browsingContext.setViewport", context=self.context, viewport={"width": width, "height": 900})
        self("browsingContext.navigate", context=self.context, url=path.as_uri(), wait="complete")

    def evaluate(self, function: str) -> Any:
        """Return what a function without arguments returns, as JSON."""
        done = self(
            "script.evaluate",
            expression=f"(async () => JSON.stringify(await ({function})()))()",
            target={"context": self.context},
            awaitPromise=True,
        )
        assert done["type"] == "success", done
        return json.loads(done["result"]["value"])


@pytest.fixture(scope="module")
def firefox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    """A headless Firefox of the machine; skips where it, or the socket's client, is missing."""
    sockets = pytest.importorskip("websockets.sync.client", reason="the extra 'browser' is not installed")
    path = shutil.which("firefox") or shutil.which("firefox-esr")
    if path is None:
        pytest.skip("neither firefox nor firefox-esr is on the path")
    profile = tmp_path_factory.mktemp("profile")
    words = [path, "--headless", "--no-remote", "--remote-debugging-port=0", "--profile", str(profile)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            lines = (re.search(r"listening on (ws://\S+)", line) for line in process.stderr)
            listening = next(filter(None, lines))
            with sockets.connect(f"{listening[1]}/session", max_size=None) as socket:
                yield Firefox(socket)
        finally:
            process.terminate()
            process.stderr.read()
