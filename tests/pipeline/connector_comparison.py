"""Spark's own Kafka connector beside the source, the archive and the one-table read: `make spark-connector`.

Topics with all codecs, headers, nulls, transactions, compaction and deleted records are read by each, with the same
options, in batches and streams. Rows, sums by partition and end offsets must be equal. Needs Java, and Maven and the
network for the first run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from archive_helpers import DAY_MS, START_MS
from archive_helpers import rows as archived_rows
from compared_topics import CODECS, STEP_MS, Topics
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from spark_reads import answer, sums

from bench.kafka_install import KafkaUnavailable
from bench.spark_install import spark_connector
from penstock.pipeline.archive.archiver import ArchiveJob, Archiver
from penstock.pipeline.archive.table import ArchiveTable
from penstock.pipeline.options import parse
from penstock.pipeline.session import open_session
from penstock.pipeline.source import PenstockSource
from penstock.testing.process import BrokerProcess

HALF, ALL = 300, 600
NAMES = (
    *(f"codec-{codec}" for codec in CODECS),
    "append-time",
    "compacted",
    "deleted",
    "empty",
    "transactions",
)
ALL_TOPICS = "all-topics"
COMMITTED = {"kafka.isolation.level": "read_committed"}
UNCOMMITTED = {"kafka.isolation.level": "read_uncommitted"}
FIELDS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Read:
    name: str
    options: Mapping[str, str]
    is_stream: bool = False
    is_in_table: bool = True
    """Whether the archive and the log as one table have these rows, too."""

    def job(self, bootstrap: str, place: Path, **more: str) -> dict[str, Any]:
        options = {"kafka.bootstrap.servers": bootstrap, **self.options, **more}
        return {"options": options, "is_stream": self.is_stream, "place": str(place / self.name)}


def by_partition(topic: str, values: Iterable[int]) -> str:
    return json.dumps({topic: {str(number): value for number, value in enumerate(values)}})


def reads() -> list[Read]:
    middle = str(START_MS + HALF * STEP_MS)
    one, several = {"subscribe": "codec-zstd", **COMMITTED}, {"subscribe": ",".join(NAMES), **COMMITTED}
    within = {"startingOffsets": by_partition("codec-zstd", (11, 7, 0))}
    within |= {"endingOffsets": by_partition("codec-zstd", (ALL // 4, -1, -1))}
    lost = {"startingOffsets": by_partition("deleted", (3, 40, -2)), "failOnDataLoss": "false"}
    return [
        Read(ALL_TOPICS, {**several, "minPartitions": "37"}),
        Read("uncommitted", {"subscribe": "transactions", **UNCOMMITTED}, is_in_table=False),
        Read("pattern", {"subscribePattern": "codec-.*|transactions", **COMMITTED}),
        Read("assign", {"assign": '{"codec-lz4": [1, 2], "compacted": [0]}', **COMMITTED}),
        Read("offsets", {**one, **within}),
        Read("lost-offsets", {"subscribe": "deleted", **COMMITTED, **lost}, is_in_table=False),
        Read(
            "from-time", {**one, "startingTimestamp": middle, "startingOffsetsByTimestampStrategy": "latest"}
        ),
        Read("until-time", {**one, "endingTimestamp": middle}),
        Read(
            "times",
            {**one, "endingOffsetsByTimestamp": by_partition("codec-zstd", [START_MS + DAY_MS // 8] * 3)},
        ),
        Read("stream", {**several, "startingOffsets": "earliest"}, is_stream=True),
        Read(
            "small-batches",
            {**one, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"},
            is_stream=True,
        ),
        Read(
            "stream-uncommitted",
            {"subscribe": "transactions", "startingOffsets": "earliest", **UNCOMMITTED},
            is_stream=True,
            is_in_table=False,
        ),
    ]


def main() -> int:
    try:
        connector = spark_connector()
    except KafkaUnavailable as error:
        print(f"nothing to compare with: {error}", file=sys.stderr)
        return 1
    program = str(Path(__file__).parent / "spark_reads.py")
    command = [str(connector.python), program, ",".join(map(str, connector.jars))]
    with tempfile.TemporaryDirectory(prefix="penstock-connector-") as name:
        directory = Path(name)
        broker = BrokerProcess(directory, ["log.cleaner.backoff.ms=200"])
        broker.start()
        try:
            topics = Topics(broker.bootstrap)
            topics.create()
            topics.fill(0, HALF)
            topics.delete_first_records()
            topics.wait_for_compaction()
            broker.stop()
            broker.settings = ("log.cleaner.enable=false",)  # the log stays as it is from here
            broker.start()
            return Comparison(broker.bootstrap, directory, command).run(topics)
        finally:
            broker.kill()


class Comparison:
    def __init__(self, bootstrap: str, directory: Path, connector: list[str]) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self._connector = connector
        self._archive = ArchiveTable.at(str(directory / "archive"))
        self._differences = 0
        self._theirs: dict[str, dict[str, Any]] = {}
        """Answers of the connector by name of the read."""

    def run(self, topics: Topics) -> int:
        spark = open_session("comparison", "local[2]")
        spark.dataSource.register(PenstockSource)
        self._archive_new(spark)
        topics.fill(HALF, ALL)
        with topics.open_transaction(ALL):
            self._ask_connector()
            self._compare_all(spark, "source")
            self._compare_all(spark, "one table", archive=self._archive.store.uri)
            self._archive_new(spark)
            self._compare_archive(spark)
            topics.delete_first_records(HALF // 4, *NAMES)
            self._compare_all(spark, "one table after truncation", archive=self._archive.store.uri)
        print(f"{self._differences} differences in {len(self._theirs)} reads", flush=True)
        return 1 if self._differences else 0

    def _ask_connector(self) -> None:
        with subprocess.Popen(
            self._connector, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for read in reads():
                process.stdin.write(json.dumps(read.job(self._bootstrap, self._directory / "theirs")) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
                assert line, f"the connector ended at the read {read.name}"
                self._theirs[read.name] = json.loads(line)

    def _archive_new(self, spark: SparkSession) -> None:
        options = parse({"bootstrap": self._bootstrap, "subscribe": ",".join(NAMES)})
        for _ in Archiver(ArchiveJob(options, self._archive), lambda: spark, print).run():
            pass

    def _compare_all(self, spark: SparkSession, side: str, **more: str) -> None:
        for read in reads():
            if more and not read.is_in_table:
                continue
            place = self._directory / side
            found = answer(spark, "penstock", read.job(self._bootstrap, place, **more))
            theirs = self._theirs[read.name]
            for what in ("sums", "ends"):
                if found.get(what) != theirs.get(what):
                    self._differ(side, read.name, f"{what}: {found.get(what)}, not {theirs.get(what)}")
            self._compare_rows(side, read.name, written_rows(place / read.name))

    def _compare_archive(self, spark: SparkSession) -> None:
        place = self._archive.store.uri
        files = spark.read.option("basePath", place).parquet(*DeltaTable(place).file_uris())
        self._compare_rows("archive", ALL_TOPICS, archived_rows(place))
        found, theirs = sums(spark, files), self._theirs[ALL_TOPICS]["sums"]
        if found != theirs:
            self._differ("archive", ALL_TOPICS, f"sums: {found}, not {theirs}")

    def _compare_rows(self, side: str, name: str, found: Iterable[Row]) -> None:
        ours, theirs = by_place(found), by_place(written_rows(self._directory / "theirs" / name))
        for place in sorted(ours.keys() | theirs.keys()):
            if ours.get(place) != theirs.get(place):
                self._differ(side, name, f"row at {place}: {ours.get(place)}, not {theirs.get(place)}")
                return
        print(f"{side}: {name}: {len(ours)} equal rows", flush=True)

    def _differ(self, side: str, name: str, difference: str) -> None:
        self._differences += 1
        print(f"{side}: {name} differs: {difference}", flush=True)


def written_rows(place: Path) -> list[Row]:
    found: list[Row] = pq.read_table(place).to_pylist() if any(place.glob("*.parquet")) else []
    return found


def by_place(rows: Iterable[Row]) -> dict[tuple[str, int, int], list[Any]]:
    found: dict[tuple[str, int, int], list[Any]] = {}
    for row in rows:
        place = (row["topic"], row["partition"], row["offset"])
        assert place not in found, f"a record was read twice: {place}"
        found[place] = [_plain(row[name]) for name in FIELDS]
    return found


def _plain(value: Any) -> Any:
    return int(value.timestamp() * 1_000) * 1_000 if isinstance(value, datetime) else value


if __name__ == "__main__":
    sys.exit(main())
