"""Kill an archiver at every step, one process after another on the same archive, with new records before each
run.

This is a script, because its children are forks of a process that has loaded all modules and started no
thread: `archive_crashes.py BOOTSTRAP PLACE TOPIC` prints one line for each crash and ends with an undisturbed
run.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from archive_helpers import job, produce
from deltalake import DeltaTable
from in_process import InProcess

from penstock.pipeline.archive import archiver, maintenance, table
from penstock.pipeline.table_store import Store

RECORDS = 7
"""Fewer records than hours of a day, so that a day gets several files, which are merged."""
STEPS: list[tuple[Any, str, int]] = [
    (table.ArchiveTable, "view_or_create", 1),
    (archiver, "_write_range", 1),
    (archiver, "_write_range", 2),
    (Store, "make_durable", 1),
    (table.ArchiveTable, "commit", 1),
    (DeltaTable, "create_write_transaction", 1),
    (archiver, "note_archived", 1),
    (archiver, "truncate", 1),
    (maintenance, "_write_merged", 1),
    (table.ArchiveTable, "replace", 1),
    (table.ArchiveTable, "vacuum", 1),
]


def main() -> None:
    bootstrap, place, topic = sys.argv[1:]
    first = 0
    for owner, name, call in STEPS:
        for is_after in (False, True):
            pid = os.fork()
            if pid == 0:
                _die_at(owner, name, call, is_after)
                _run(bootstrap, place, topic, first)
            _, status = os.waitpid(pid, 0)
            died = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            print(
                name,
                call,
                "after" if is_after else "before",
                "killed" if died else f"ended {status}",
                flush=True,
            )
            first += RECORDS
    _run(bootstrap, place, topic, first)


def _run(bootstrap: str, place: str, topic: str, first: int) -> None:
    try:
        produce(bootstrap, topic, range(first, first + RECORDS))
        session = InProcess()
        work = job(bootstrap, place, topic, truncates=True, grace_ms=-1000)
        list(archiver.Archiver(work, session, lambda _: None).run())
        maintenance.maintain(work.table, session, None, worthwhile=2)
    except BaseException as error:  # noqa: BLE001 - a fork must not go on as its parent
        print(f"failed: {error!r}", flush=True)
        os._exit(1)
    os._exit(0)


def _die_at(owner: Any, name: str, call: int, is_after: bool) -> None:
    original: Callable[..., Any] = getattr(owner, name)
    calls = 0

    @wraps(original)
    def dying(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and not is_after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **options)
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, dying)


if __name__ == "__main__":
    main()
