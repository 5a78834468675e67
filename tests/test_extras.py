from __future__ import annotations

import importlib.metadata
import json
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock import extras

INSTALL = [sys.executable, "-m", "pip", "install"]


def command() -> list[str]:
    return shlex.split(extras.how_to_install("cluster"))


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    directory = tmp_path / "a clone"
    directory.mkdir()
    (directory / "pyproject.toml").touch()
    return directory


def install_copy(monkeypatch: pytest.MonkeyPatch, directory: Path, url: str | None) -> None:
    """Pretend that the package is in site-packages and that pip recorded its origin."""
    monkeypatch.setattr(extras, "__file__", str(directory / "lib/site-packages/penstock/extras.py"))
    noted = None if url is None else json.dumps({"url": url, "dir_info": {}})
    monkeypatch.setattr(
        importlib.metadata, "distribution", lambda _: SimpleNamespace(read_text=lambda _: noted)
    )


def test_extras_of_a_clone_in_editable_mode_leave_it_editable(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "__file__", str(clone / "src/penstock/extras.py"))
    assert command() == [*INSTALL, "--editable", f"{clone}[cluster]"]


def test_extras_of_a_copied_clone_are_installed_from_that_clone(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_copy(monkeypatch, tmp_path, clone.as_uri())
    assert command() == [*INSTALL, f"{clone}[cluster]"]
    (clone / "pyproject.toml").unlink()
    assert command() == [*INSTALL, "penstock[cluster]"]


def test_extras_of_a_package_without_a_clone_are_installed_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url in (None, "https://example.org/penstock.whl"):
        install_copy(monkeypatch, tmp_path, url)
        assert command() == [*INSTALL, "penstock[cluster]"]

    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert command() == [*INSTALL, "penstock[cluster]"]
