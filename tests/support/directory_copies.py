"""Ways in which operators and backup tools copy a data directory and restore the copy."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

Restore = Callable[[Path, Path], None]
"""Function that replaces a data directory (second path) by a copy (first path)."""


def copy_directory(data: Path, copy: Path) -> None:
    """Copy with times, like `cp -a`. The copied logs are an hour old, so that no test depends on the clock's
    resolution.
    """
    shutil.copytree(data, copy, symlinks=True)
    for path in [copy / "logs", *(copy / "logs").rglob("*")]:
        if path.is_dir() or path.suffix == ".log":
            status = path.stat()
            os.utime(path, (status.st_atime - 3600, status.st_mtime - 3600))


def move_in_place(copy: Path, data: Path) -> None:
    data.rename(data.with_name("away"))
    copy.rename(data)


def copy_back(copy: Path, data: Path) -> None:
    shutil.rmtree(data)
    shutil.copytree(copy, data, symlinks=True)


def overwrite_files(copy: Path, data: Path) -> None:
    """Restore like `cp -r copy/. data`: files keep their inodes and get new times."""
    for path in copy.rglob("*"):
        target = data / path.relative_to(copy)
        if path.is_file():
            target.parent.mkdir(exist_ok=True, parents=True)
            shutil.copyfile(path, target)


def rename_over(copy: Path, data: Path) -> None:
    """Restore like a tool that writes each file beside its target and renames it."""
    for path in copy.rglob("*"):
        if path.is_file():
            target = data / path.relative_to(copy)
            temporary = target.with_name(f"{target.name}.restoring")
            shutil.copyfile(path, temporary)
            temporary.rename(target)


def synchronize(copy: Path, data: Path) -> None:
    """Restore like `rsync -a --delete`: skip files of equal size and time, and preserve times."""
    for path in sorted(data.rglob("*"), reverse=True):
        if not (copy / path.relative_to(data)).exists():
            path.rmdir() if path.is_dir() else path.unlink()
    for path in sorted(copy.rglob("*"), reverse=True):
        target = data / path.relative_to(copy)
        if path.is_dir():
            shutil.copystat(path, target)
        elif not target.exists() or not _is_same(path, target):
            temporary = target.with_name(f".{target.name}.restoring")
            shutil.copy2(path, temporary)
            temporary.rename(target)


def replace_logs(copy: Path, data: Path) -> None:
    (data / "logs").rename(data / "away")
    (copy / "logs").rename(data / "logs")


def _is_same(path: Path, other: Path) -> bool:
    mine, others = path.stat(), other.stat()
    return (mine.st_size, mine.st_mtime_ns) == (others.st_size, others.st_mtime_ns)


RESTORES: list[Restore] = [
    move_in_place,
    copy_back,
    overwrite_files,
    rename_over,
    synchronize,
    replace_logs,
]
