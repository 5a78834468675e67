"""Starts a broker whose system calls fail while a file exists: `python failing_disk.py FILE broker ...`.

FILE contains `CALL ERRNO` (for example `fdatasync EIO`), or `CALL ERRNO PART` to fail only for paths that
contain PART. Without the file all calls succeed.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from typing import Any


def make_fail(name: str, switch: str) -> None:
    real: Callable[..., Any] = getattr(os, name)

    def call(*arguments: Any) -> Any:
        try:
            with open(switch) as file:
                failing, code, *part = file.read().split()
        except OSError:
            return real(*arguments)
        if failing == name and _concerns(arguments, part):
            number = getattr(errno, code)
            raise OSError(number, os.strerror(number))
        return real(*arguments)

    setattr(os, name, call)


def _concerns(arguments: tuple[Any, ...], part: list[str]) -> bool:
    if not part or not isinstance(arguments[0], int):
        return True
    return part[0] in os.readlink(f"/proc/self/fd/{arguments[0]}")


if __name__ == "__main__":
    for call_name in ("pwrite", "pwritev", "write", "fdatasync", "fsync", "rename", "replace", "ftruncate"):
        make_fail(call_name, sys.argv[1])
    del sys.argv[1]
    from penstock.cli.main import main

    main()
