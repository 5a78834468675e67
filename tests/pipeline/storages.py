"""Archive, one-table read, replay, compact and stats on local disk, HDFS and an S3 server: `make storages`.

On each storage an archiver is killed with `kill -9` before and after each of its steps, and the other jobs die before
and after the commit of their table. Every record is there once at the end, and the table of last values and the
windows are those of the log. Options: names of storages (all).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from archive_crashes import RECORDS, STEPS
from archive_helpers import digest, make, numbers, produce, read_topic, rows
from deltalake import DeltaTable
from job_tables import KEYS, WINDOW, table_rows, told
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from storage_servers import NAMES, missing_tools, storage

from penstock.pipeline import stats_outputs
from penstock.pipeline.compact import CompactJob, compact
from penstock.pipeline.options import parse
from penstock.pipeline.query import topic_frame
from penstock.pipeline.replay import ReplayJob, replay
from penstock.pipeline.session import open_session
from penstock.pipeline.stats import StatsJob, start
from penstock.testing.process import BrokerProcess

COUNTED = 1_000
MINUTE_MS = 60_000


class Died(Exception):
    """The driver has died at a commit."""


def main(chosen: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="penstock-storages-") as place, ExitStack() as stack:
        directory = Path(place)
        roots = {}
        for name in chosen or NAMES:
            if missing := missing_tools(name):
                print(f"{name}: skipped, {', '.join(missing)} is not installed")
            else:
                roots[name] = stack.enter_context(storage(name, directory))
        broker = BrokerProcess(directory)
        broker.start()
        stack.callback(broker.kill)
        # Spark's processes get the environment of this moment, with the settings of the S3 server.
        spark = open_session("storages", "local[2]")
        stack.callback(spark.stop)
        for name, root in roots.items():
            _try_out(spark, broker.bootstrap, name, root, directory)
            print(f"{name}: passed", flush=True)
    return 0


def _try_out(spark: SparkSession, bootstrap: str, name: str, root: str, directory: Path) -> None:
    archive, topic = f"{root}/archive", f"source-{name}"
    make(bootstrap, topic, archive_required="true")
    count = _archive(bootstrap, archive, topic)
    wanted = digest(b"value %d" % number for number in range(count))
    archived = [row["value"] for row in rows(archive)]
    assert (len(archived), digest(archived)) == (count, wanted), f"{len(archived)} of {count} archived"
    _note(name, f"{count} records archived once, with {2 * len(STEPS)} kills")
    produce(bootstrap, topic, range(count, count + RECORDS))
    count += RECORDS
    wanted = digest(b"value %d" % number for number in range(count))
    read = topic_frame(spark, bootstrap, [topic], archive).select("value").collect()
    assert digest(bytes(row.value) for row in read) == wanted
    _note(name, f"{len(read)} records read as one table of archive and log")
    _replay(spark, bootstrap, archive, topic, wanted)
    _note(name, "replayed once")
    _compact(spark, bootstrap, archive, topic, f"{root}/latest", count)
    _note(name, "compacted, with deaths before and after the commit")
    windows = _stats(spark, bootstrap, f"counted-{name}", root, directory / f"checkpoint-{name}")
    _note(name, f"{windows} windows counted once, with deaths before and after commits")


def _archive(bootstrap: str, archive: str, topic: str) -> int:
    """Number of records that the crashing archivers had to archive."""
    script = Path(__file__).with_name("archive_crashes.py")
    done = subprocess.run(
        [sys.executable, str(script), bootstrap, archive, topic], capture_output=True, text=True, timeout=900
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(lines) == 2 * len(STEPS), done.stdout
    assert [line for line in lines if not line.endswith("killed")] == []
    return RECORDS * (2 * len(STEPS) + 1)


def _replay(spark: SparkSession, bootstrap: str, archive: str, topic: str, wanted: str) -> None:
    target = f"{topic}-replayed"
    make(bootstrap, target)
    options = parse({"bootstrap": bootstrap, "subscribe": topic, "archive": archive})
    for _ in range(2):  # the second run finds nothing left
        list(replay(ReplayJob(options, target, name="storages"), lambda: spark))
    found = read_topic(bootstrap, target)
    assert digest(b"value %d" % record.number for record in found) == wanted


def _compact(spark: SparkSession, bootstrap: str, archive: str, topic: str, to: str, count: int) -> None:
    options = parse({"bootstrap": bootstrap, "subscribe": topic, "archive": archive})
    job = CompactJob(options, to)
    states = []
    for is_after in (False, True):
        with _death_at(DeltaTable, "create_write_transaction", 1, is_after):
            compact(spark, job)
        states.append(numbers(table_rows(to)))
    latest = list(range(count - KEYS, count))
    assert states == [[], latest], states
    assert compact(spark, job) == KEYS
    assert numbers(table_rows(to)) == latest


def _stats(spark: SparkSession, bootstrap: str, topic: str, root: str, checkpoint: Path) -> int:
    counts = f"{topic}-windows"
    make(bootstrap, topic)
    make(bootstrap, counts, 1)
    place = None if root.startswith("hdfs:") else str(checkpoint)
    job = StatsJob(bootstrap, (topic,), f"{root}/stats", place, 60 * MINUTE_MS, MINUTE_MS, counts)
    for number in range(3):
        produce(bootstrap, topic, range(number * COUNTED, (number + 1) * COUNTED), step_ms=MINUTE_MS)
        if number < 2:
            with _death_at(stats_outputs, "write_deltalake", 1, bool(number)):
                start(spark, job, once=True).awaitTermination()
        start(spark, job, once=True).awaitTermination()
    wanted = (3 * COUNTED - 2) // WINDOW
    for found in (table_rows(job.to), told(bootstrap, counts)):
        assert len({row["window_start"] for row in found}) == len(found) == wanted, len(found)
        assert [row for row in found if row["records"] != WINDOW] == []
    return wanted


@contextmanager
def _death_at(owner: Any, name: str, call: int, is_after: bool) -> Iterator[None]:
    """Expect the body to die before or after the nth call of a function of the driver."""
    original: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def dying(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and not is_after:
            raise Died
        result = original(*arguments, **options)
        if calls == call:
            raise Died
        return result

    setattr(owner, name, dying)
    try:
        yield
    except Died:
        pass
    except StreamingQueryException as error:
        if "Died" not in str(error):
            raise
    else:
        raise AssertionError(f"{name} was not called")
    finally:
        setattr(owner, name, original)


def _note(name: str, what: str) -> None:
    print(f"{name}: {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
