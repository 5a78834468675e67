"""The files of the console: small, without inline code and markup from text, served with strict headers."""

from __future__ import annotations

import gzip
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

import penstock.gateway.console
from penstock.clock import SystemClock
from penstock.config import BrokerConfig
from penstock.errors import ConfigError
from penstock.gateway.console.assets import Assets
from penstock.gateway.console.endpoints import console_endpoints
from penstock.gateway.endpoint_context import EndpointContext
from penstock.gateway.health import BrokerState, Health
from penstock.gateway.http.application import GatewayApplication
from penstock.gateway.system_endpoints import system_endpoints
from penstock.observability.log_lines import json_line
from penstock.observability.logs import Logger
from penstock.observability.metrics import BrokerMetrics
from penstock.threads import ThreadPools

STATIC = Path(penstock.gateway.console.__file__).parent / "static"
MODULES = sorted(STATIC.rglob("*.js"))
MAX_BYTES = 150_000
MAX_LINES = 300
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc"
)


def client(**settings: str) -> httpx.AsyncClient:
    config = BrokerConfig({name.replace("_", "."): value for name, value in settings.items()})
    has_console = settings.get("console_enable") != "false"
    endpoints = system_endpoints(
        console_endpoints(config) if has_console else (),
        lambda: Health(BrokerState.SERVING),
        cast(Callable[[], Awaitable[bytes]], None),
        has_console=has_console,
    )
    nothing: Any = None
    log = Logger(SystemClock(), lambda line: None, json_line)
    context = EndpointContext(nothing, config, SystemClock(), ThreadPools(), log, nothing, nothing)
    application = GatewayApplication(context, endpoints, [], BrokerMetrics({}, 1), "test")
    return httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://gateway")


def test_all_files_are_small_over_the_wire() -> None:
    assert Assets().compressed_bytes < MAX_BYTES


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_module_is_short_and_makes_no_markup_from_text(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= MAX_LINES
    assert not MARKUP.search(text)
    assert text.startswith("// "), "a module begins with its purpose"


def test_page_has_no_inline_code() -> None:
    page = Assets().page.content.decode()
    assert not re.search(r"<style|<script(?![^>]* src=)|\son\w+=|style=|javascript:|https?://", page)


async def test_files_are_kept_for_ever_and_the_page_never() -> None:
    async with client() as http:
        page = await http.get("/console")
        assert page.headers["cache-control"] == "no-store"
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        for target in re.findall(r'(?:src|href)="([^"]+)"', page.text):
            file = await http.get(target)
            assert file.status_code == 200, target
            assert file.headers["cache-control"] == "public, max-age=31536000, immutable"
            assert file.headers["x-content-type-options"] == "nosniff"
        [main] = re.findall(r'src="([^"]+)"', page.text)
        deep = main.replace("main.js", "pages/topics.js")
        compressed = await http.get(deep, headers={"accept-encoding": "gzip"})
        plain = await http.get(deep, headers={"accept-encoding": "identity"})
        assert compressed.headers["content-encoding"] == "gzip"
        assert compressed.text == plain.text
        assert gzip.decompress(gzip.compress(plain.content)) == plain.content


@pytest.mark.parametrize(
    "path",
    [
        "/console/assets/0000000000000000/main.js",
        "/console/assets/{digest}/%2e%2e%2fassets.py",
        "/console/assets/{digest}/pages/..%2fmain.js",
        "/console/assets/{digest}/pages",
        "/console/assets/{digest}/index.html",
        "/console/assets/{digest}//etc/passwd",
        "/console/assets/{digest}/main.js%00",
    ],
)
async def test_console_paths_without_a_file_get_404(path: str) -> None:
    async with client() as http:
        assert (await http.get(path.replace("{digest}", Assets().digest))).status_code == 404


async def test_root_leads_browsers_to_the_console_and_others_to_the_reference() -> None:
    async with client() as http:
        browser = await http.get("/", headers={"accept": "text/html,application/xhtml+xml"})
        assert (browser.status_code, browser.headers["location"]) == (302, "/console")
        assert "Penstock HTTP gateway" in (await http.get("/")).text
        assert "Penstock HTTP gateway" in (await http.get("/api")).text
    async with client(console_enable="false") as http:
        assert (await http.get("/", headers={"accept": "text/html"})).status_code == 200
        assert (await http.get("/console")).status_code == 404


async def test_hidden_topics_are_patterns_of_the_configuration() -> None:
    async with client(console_hide_values="payments, *.private") as http:
        assert (await http.get("/console/settings")).json()["hidden"] == ["payments", "*.private"]
    async with client() as http:
        assert (await http.get("/console/settings")).json()["hidden"] == []
    with pytest.raises(ConfigError):
        BrokerConfig({"console.hide.values": "a b"})
