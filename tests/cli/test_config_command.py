"""`penstock config` on running brokers."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from penstock.cli.main import run
from penstock.testing import Broker

SETTING = "log.retention.ms"
Penstock = Callable[..., str]
"""Function that runs a command, checks its exit code, and returns its output."""


@pytest.fixture
def penstock(
    penstock_broker: Broker, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Penstock:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", penstock_broker.bootstrap)

    def call(*arguments: str, code: int = 0) -> str:
        ended = run(arguments)
        shown = capfd.readouterr()
        assert ended == code, shown.err
        return shown.err if code else shown.out

    return call


def test_settings_of_running_brokers_are_shown_set_and_unset(penstock: Penstock) -> None:
    def shown(*where: str) -> dict[str, str]:
        found: dict[str, dict[str, str]] = json.loads(penstock("config", "show", *where, "--json"))
        return found.get(SETTING, {})

    before = shown("--broker", "1")
    assert before["from"] == "default"
    assert penstock("config", "show", "--all") == (
        "no settings are set for all brokers; `penstock config set NAME=VALUE --all` sets one\n"
    )
    assert penstock("config", "set", f"{SETTING}=7000", "--all") == f"set {SETTING} on all brokers\n"
    assert shown("--broker", "1") == {"value": "7000", "from": "set on all brokers"}
    assert shown("--all") == {"value": "7000", "from": "set on all brokers"}
    penstock("config", "set", f"{SETTING}=9000", "--broker", "1")
    assert shown("--broker", "1") == {"value": "9000", "from": "set on this broker"}
    assert penstock("config", "unset", SETTING, "--broker", "1") == f"unset {SETTING} on broker 1\n"
    penstock("config", "unset", SETTING, "--all")
    assert shown("--broker", "1") == before


def test_config_command_errors_name_the_next_step(penstock: Penstock) -> None:
    assert "no broker is named" in penstock("config", "set", f"{SETTING}=1", code=2)
    assert "--broker 1 and --all exclude each other" in penstock(
        "config", "set", f"{SETTING}=1", "--all", "--broker", "1", code=2
    )
    assert "Running brokers: 1." in penstock("config", "show", "--broker", "7", code=1)
    assert "did you mean" in penstock("config", "set", "log.retention.mss=1", "--all", code=1)
    assert "cannot be changed while the broker runs" in penstock(
        "config", "set", "log.dir=/x", "--broker", "1", code=1
    )
