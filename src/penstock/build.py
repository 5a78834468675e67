"""Build of the running package: pure Python, or with its hot modules compiled by mypyc.

`make compile` copies the sources to `build/compiled`, adds the compiled modules and writes `sources.json`
beside the copy of this file. `sources.json` holds the directory of the sources and their digest at that time.
If the sources have changed since, the import of the package fails, so no process runs code that is older than
the checkout. An installed wheel has no `sources.json`, since its files never change.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Build = Literal["pure", "compiled"]

ALWAYS_COMPILED = "penstock.wire.framing"
"""Module that is compiled in every compiled build: it shows which kind of build is running."""

RECORD = os.path.join(os.path.dirname(__file__), "sources.json")


class StaleBuild(ImportError):
    """The sources have changed since the compiled build was made."""


def current_build() -> Build:
    """Kind of the build that this process imports."""
    from importlib.machinery import EXTENSION_SUFFIXES
    from importlib.util import find_spec

    spec = find_spec(ALWAYS_COMPILED)
    is_compiled = spec is not None and str(spec.origin).endswith(tuple(EXTENSION_SUFFIXES))
    return "compiled" if is_compiled else "pure"


def check_sources(record: str = RECORD) -> None:
    """Raise StaleBuild if this is a compiled build and its sources have changed since it was made."""
    if not os.path.exists(record):
        return
    import json

    with open(record, encoding="utf-8") as file:
        compiled = json.load(file)
    directory = compiled["directory"]
    if source_digest(directory) != compiled["digest"]:
        raise StaleBuild(
            f"the compiled build in {os.path.dirname(record)} differs from its sources in {directory}:"
            " run `make compile`, or `make pure` to remove it"
        )


def source_digest(directory: str) -> str:
    """Digest of the names and contents of all Python and C sources below a directory."""
    from hashlib import sha256

    digest = sha256()
    for parent, directories, files in os.walk(directory):
        directories.sort()
        for name in sorted(files):
            if name.endswith((".py", ".c", ".h")):
                path = os.path.join(parent, name)
                with open(path, "rb") as file:
                    content = file.read()
                place = os.path.relpath(path, directory)
                digest.update(f"{place} {len(content)}\n".encode())
                digest.update(content)
    return digest.hexdigest()


def write_record(package: str, sources: str) -> None:
    """Write the record into a compiled copy of the package: the directory of its sources and their digest."""
    import json

    content = {"directory": os.path.abspath(sources), "digest": source_digest(sources)}
    with open(os.path.join(package, os.path.basename(RECORD)), "w", encoding="utf-8") as file:
        json.dump(content, file)
