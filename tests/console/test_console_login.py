"""The login of the console in a browser, at a broker that was started with `--secure`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from browser import Watch, open_browser

from support.broker_process import free_ports

START_LINE = "penstock serves"


@pytest.fixture(scope="module")
def address(starts_processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Address of the console, and the password of the administrator."""
    directory = tmp_path_factory.mktemp("console-login")
    port, http_port = free_ports(2)
    command = [sys.executable, "-m", "penstock.cli.main", "broker", "--secure", "--port", str(port)]
    command += ["--http-port", str(http_port), "--data-dir", str(directory / "data")]
    environment = os.environ | {"XDG_CONFIG_HOME": str(directory / "home")}
    with (
        (directory / "broker.log").open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            while START_LINE not in process.stdout.readline():
                assert process.poll() is None, (directory / "broker.log").read_text()
            password = Path(directory / "data" / "tls" / "admin.password").read_text().strip()
            yield f"https://localhost:{http_port}/console", password
        finally:
            process.terminate()


@pytest.fixture
def page(address: tuple[str, str]) -> Iterator[Any]:
    with open_browser() as browser:
        context = browser.new_context(ignore_https_errors=True)
        opened = context.new_page()
        opened.set_default_timeout(30_000)
        watch = Watch(opened)
        watch.allowed = ("401", "403")  # a browser reports every refused request
        yield opened
        context.close()
        assert watch.complaints == []


def log_in(page: Any, user: str, password: str) -> None:
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("User").fill(user)
    dialog.get_by_label("Password").fill(password)
    dialog.get_by_role("button", name="Log in").click()


def test_administrator_logs_in_changes_something_and_logs_out(page: Any, address: tuple[str, str]) -> None:
    console, password = address
    page.goto(console)
    log_in(page, "admin", "guess")
    page.get_by_text("The user or the password is wrong.").wait_for()
    log_in(page, "admin", password)
    page.get_by_text("All is well").wait_for()
    [cookie] = page.context.cookies()
    assert cookie["name"].startswith("__Host-")
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Strict")
    assert page.evaluate("document.cookie") == ""
    stored = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    assert password not in stored
    assert cookie["value"] not in stored
    # A reload keeps the session; a change needs its token, which the page sends along.
    page.goto(console + "#/topics")
    page.get_by_role("button", name="Log out").wait_for()
    made = page.evaluate(
        """async () => {
            const {csrf} = await (await fetch("/v1/session")).json();
            const create = (headers) => fetch("/v1/topics", {
                method: "POST", body: JSON.stringify({name: "from-browser"}),
                headers: {"content-type": "application/json", ...headers}});
            return [(await create({})).status, (await create({"x-penstock-csrf": csrf})).status];
        }"""
    )
    assert made[0] in (401, 403)
    assert made[1] == 201
    page.get_by_role("button", name="Log out").click()
    page.get_by_role("dialog").get_by_label("Password").wait_for()
    assert page.context.cookies() == []


def test_user_without_rights_sees_which_right_is_missing(page: Any, address: tuple[str, str]) -> None:
    console, password = address
    origin = console.removesuffix("/console")
    with httpx.Client(base_url=origin, auth=("admin", password), verify=False, timeout=30) as admin:
        for name in ("open", "secret"):
            admin.post("/v1/topics", json={"name": name}).raise_for_status()
        messages = {"messages": [{"value": "for ann's eyes"}]}
        admin.post("/v1/topics/open/messages", json=messages).raise_for_status()
        admin.post("/v1/users", json={"name": "ann", "password": "ann's password"}).raise_for_status()
        rule = {"principal": "User:ann", "resource_type": "TOPIC", "name": "open", "operation": "DESCRIBE"}
        admin.post("/v1/acls", json={"rules": [rule]}).raise_for_status()
    page.goto(console + "#/topics")
    log_in(page, "ann", "ann's password")
    page.get_by_role("link", name="open", exact=True).click()
    delete = page.get_by_role("button", name="Delete topic")
    page.locator("button[disabled][title='You need the right DELETE on topic open.']").first.wait_for()
    assert delete.is_disabled()
    refusal = page.get_by_text("You may not see this.")
    refusal.wait_for()
    page.get_by_text("1 records").wait_for()  # another request of the page succeeds beside the refused one
    assert refusal.is_visible()
    assert "for ann's eyes" not in page.content()
    page.goto(console + "#/topics")
    page.get_by_role("link", name="open", exact=True).wait_for()
    assert page.get_by_role("link", name="secret", exact=True).count() == 0
