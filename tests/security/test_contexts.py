"""Contexts of the command line: which one applies, and where it comes from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.cli.contexts import (
    Context,
    Contexts,
    contexts_file,
    enter_context,
    load_contexts,
    save_contexts,
)
from penstock.cli.failures import Failure

VARIABLES = (
    "PENSTOCK_BOOTSTRAP",
    "PENSTOCK_CA",
    "PENSTOCK_USER",
    "PENSTOCK_PASSWORD_FILE",
    "PENSTOCK_CONTEXT",
)
LAB = Context("lab:9093", "/ca.pem", "admin", "/password")
OTHER = Context("other:9092")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Home directory with two contexts, of which one is the current one."""
    for variable in VARIABLES:
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    save_contexts(Contexts({"lab": LAB, "other": OTHER}, "lab"))
    return tmp_path


def bootstrap() -> str | None:
    return os.environ.get("PENSTOCK_BOOTSTRAP")


def test_current_context_applies_without_a_choice() -> None:
    assert enter_context(["topic", "list"]) == ["topic", "list"]
    assert (bootstrap(), os.environ["PENSTOCK_USER"]) == ("lab:9093", "admin")


@pytest.mark.parametrize("option", [["--context", "other"], ["--context=other"]])
def test_chosen_context_applies_and_is_no_argument_of_the_command(option: list[str]) -> None:
    assert enter_context(["topic", *option, "list"]) == ["topic", "list"]
    assert bootstrap() == "other:9092"


@pytest.mark.parametrize(
    "named", [["--bootstrap", "x:1"], ["-b", "x:1"], ["--bootstrap=x:1"], ["--data-dir", "d"]]
)
def test_named_cluster_takes_precedence_over_the_current_context(named: list[str]) -> None:
    assert enter_context(["topic", "list", *named]) == ["topic", "list", *named]
    assert bootstrap() is None


def test_environment_takes_precedence_over_the_current_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", "mine:9092")
    enter_context(["topic", "list"])
    assert (bootstrap(), os.environ.get("PENSTOCK_USER")) == ("mine:9092", None)


def test_unknown_context_is_refused() -> None:
    with pytest.raises(Failure, match="no context"):
        enter_context(["topic", "list", "--context", "nowhere"])
    with pytest.raises(Failure, match="needs a name"):
        enter_context(["topic", "list", "--context"])


def test_missing_home_directory_means_no_contexts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(contexts_file()))
    assert load_contexts() == Contexts()
    assert enter_context(["topic", "list"]) == ["topic", "list"]


def test_damaged_file_is_reported(home: Path) -> None:
    contexts_file().write_text("{")
    with pytest.raises(Failure, match="cannot read"):
        load_contexts()
