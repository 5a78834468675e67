"""A browser for tests: Playwright with the Chromium of the system, or a skip that says what is missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def executable() -> str:
    """Return the path of Chromium: `PENSTOCK_CHROMIUM`, or one of the usual names."""
    given = os.environ.get("PENSTOCK_CHROMIUM")
    found = given or next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None:
        pytest.skip("Chromium is not installed; PENSTOCK_CHROMIUM may name its path")
    return found


@contextmanager
def open_browser() -> Iterator[Any]:
    path = executable()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Watch:
    """Complaints of a page: errors, violations of the content security policy, dialogs that a script opened."""

    def __init__(self, page: Any) -> None:
        self.complaints: list[str] = []
        self.allowed: tuple[str, ...] = ()
        """Parts of complaints that a test expects."""
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(f"error {error}"))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning") and not any(part in message.text for part in self.allowed):
            self.complaints.append(f"{message.type} {message.text}")
