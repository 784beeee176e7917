"""Debian's own Chromium, driven by playwright, and what is heard of a page."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright


@dataclass
class Heard:
    """What a page asked for, what it got of that, and what it complained of."""

    requests: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base's own name)
        """Say nothing."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium; without one a test skips, but in CI it fails."""
    program = shutil.which("chromium")
    if program is None:
        reason = "there is no chromium; install Debian's package of that name"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's sandbox refuses root
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=flags)
        yield browser
        browser.close()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of ``folder``, served on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def opened(browser: Browser, url: str, **context: Any) -> Iterator[tuple[Page, Heard]]:
    """The page at ``url`` in a context of its own, and what was heard of it until the end."""
    with browser.new_context(**context) as made:
        page, heard = made.new_page(), Heard()
        page.on("request", lambda request: heard.requests.append(request.url))
        page.on("response", lambda response: heard.answers.append(response.url))
        page.on("console", lambda said: heard.complaints.append(said.text))
        page.on("pageerror", lambda error: heard.complaints.append(str(error)))
        page.set_default_timeout(60_000)
        page.goto(url)
        yield page, heard
