"""Command that installs an optional part of Penstock in this installation."""

from __future__ import annotations

import json
import os
import shlex
import sys

_NAME = "penstock"


def how_to_install(extra: str) -> str:
    """Return the shell command that installs an extra: from the clone that this package was installed from, or
    else by the package's name.

    If the clone is installed in editable mode, as `make run` does, the command keeps that mode. Otherwise it
    would install a copy, and later changes of the clone would have no effect.
    """
    clone, is_editable = _clone()
    options = ["--editable"] if is_editable else []
    command = [sys.executable, "-m", "pip", "install", *options, f"{clone or _NAME}[{extra}]"]
    return shlex.join(command)


def _clone() -> tuple[str | None, bool]:
    """Directory of the clone, None if there is none, and True if the package is installed in editable mode."""
    package = os.path.dirname(os.path.abspath(__file__))
    parent = os.path.dirname(os.path.dirname(package))
    if _is_clone(parent):
        return parent, True
    origin = _origin()
    return (origin, False) if origin is not None and _is_clone(origin) else (None, False)


def _origin() -> str | None:
    """Directory that pip installed this package from (PEP 610); None if it was not a directory. Imports are
    local, because every broker loads this module.
    """
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        text = distribution(_NAME).read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    parts = urlsplit(json.loads(text)["url"]) if text else None
    return unquote(parts.path) if parts and parts.scheme == "file" else None


def _is_clone(directory: str) -> bool:
    return os.path.exists(os.path.join(directory, "pyproject.toml"))
