"""Files of derived indexes, put beside the closed segments of a log. Loop thread only."""

from __future__ import annotations

from penstock.storage.derived.file import EntryFile
from penstock.storage.derived.index import EntryFileJob
from penstock.storage.log import Log
from penstock.threads import Threads


async def place_file(log: Log, threads: Threads, job: EntryFileJob) -> EntryFile | None:
    """Write a file and put it in place; None if the job was given up or the log has changed meanwhile. OSError when the
    disk has no space.
    """
    generation = log.generation
    is_written = await threads.run("background", job.write)
    if not is_written or log.generation != generation or not log.jobs.begin_filing(job.segment):
        await threads.run("background", job.discard)
        return None
    try:
        return await threads.run("background", job.place)
    finally:
        log.jobs.finish_filing(job.segment)
