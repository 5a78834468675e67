"""Files of derived indexes, put beside the segments of a log. Loop thread only."""

from __future__ import annotations

from typing import Protocol, TypeVar

from penstock.storage.log import Log
from penstock.storage.segment import Segment
from penstock.threads import Threads

T_co = TypeVar("T_co", covariant=True)


class FileJob(Protocol[T_co]):
    """Job that writes the file of a derived index: `write`, then `place` or `discard`. All three wait for the disk."""

    @property
    def segment(self) -> Segment: ...

    def write(self) -> bool:
        """Write the file under a temporary name; False if the file is no longer wanted."""

    def place(self) -> T_co: ...

    def discard(self) -> None: ...


async def place_file(
    log: Log, threads: Threads, job: FileJob[T_co], *, may_be_active: bool = False
) -> T_co | None:
    """Write a file and put it in place; None if it is no longer wanted or the log has changed meanwhile. OSError if the
    disk is full.
    """
    generation = log.generation
    is_written = await threads.run("background", job.write)
    if (
        not is_written
        or log.generation != generation
        or not log.jobs.begin_filing(job.segment, may_be_active=may_be_active)
    ):
        await threads.run("background", job.discard)
        return None
    try:
        return await threads.run("background", job.place)
    finally:
        log.jobs.finish_filing(job.segment)
