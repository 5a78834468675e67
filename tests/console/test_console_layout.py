"""Every page at two widths, light and dark: nothing overflows, axe finds nothing, no error is reported."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from browser import Watch

from support.broker_process import BrokerProcess

PATHS = (
    "/",
    "/topics",
    "/topics/orders",
    "/topics/reminders?tab=delayed",
    "/views",
    "/queues",
    "/queues/jobs",
    "/queues/jobs?tab=dead-letters",
    "/queues/jobs?tab=settings",
    "/groups",
    "/groups/billing",
    "/brokers",
    "/brokers/1",
    "/connections",
    "/transactions",
    "/schedules",
    "/webhooks",
    "/access",
    "/access?tab=rules",
    "/access?tab=quotas",
    "/access?tab=refused",
    "/access/users/ann",
    "/pipelines",
    "/pipelines/clean",
    "/pipelines/clean?tab=events",
    "/archive",
    "/about",
)


@pytest.mark.parametrize("width", [360, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_and_are_accessible(browser: Any, broker: BrokerProcess, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    watch = Watch(page)
    for path in PATHS:
        page.goto("about:blank")
        page.goto(f"http://127.0.0.1:{broker.http_port}/console#{path}")
        page.locator(".page").wait_for()
        page.locator(".loading").wait_for(state="detached")
        overflow = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert overflow <= 0, path
        _check_accessibility(page, path)
    context.close()
    assert watch.complaints == []


def _check_accessibility(page: Any, path: str) -> None:
    """Check the page with axe."""
    results = Axe().run(page)
    assert results.violations_count == 0, f"{path}: {results.generate_report()}"
