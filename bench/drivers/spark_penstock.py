"""Jobs of the Penstock source and archive in a warm session: one line of JSON in, one line of figures out."""

from __future__ import annotations

import json
import shutil
import sys
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.drivers.spark_kafka import batch_ms
from penstock.declared.value_schema import parse_schema
from penstock.pipeline.archive.archiver import ArchiveJob, Archiver
from penstock.pipeline.archive.table import ArchiveTable
from penstock.pipeline.options import parse
from penstock.pipeline.session import open_session


def main() -> None:
    session = open_session("bench", "local[2]")
    for line in sys.stdin:
        job = json.loads(line)
        began = time.monotonic()
        figures: dict[str, float] = {}
        if job.get("batch_rows"):
            figures["batch_ms"] = batch_ms(_stream(session, job), job["target"])
        elif job["target"]:
            _archive(session, job)
        else:
            _read(session, job)
        print(json.dumps({"seconds": time.monotonic() - began, **figures}), flush=True)
        if job["target"]:
            shutil.rmtree(job["target"])


def _options(job: dict[str, Any]) -> dict[str, str]:
    return {"kafka.bootstrap.servers": job["bootstrap"], "subscribe": job["topic"], "includeHeaders": "true"}


def _read(session: SparkSession, job: dict[str, Any]) -> None:
    records = session.read.format("penstock").options(**_options(job)).load()
    records.write.format("noop").mode("overwrite").save()


def _stream(session: SparkSession, job: dict[str, Any]) -> DataFrame:
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(job["batch_rows"])}
    return session.readStream.format("penstock").options(**_options(job), **limits).load()


def _archive(session: SparkSession, job: dict[str, Any]) -> None:
    schema = parse_schema(job["schema"]) if job.get("schema") else None
    job_of_all = ArchiveJob(parse(_options(job)), ArchiveTable.at(job["target"]), schema=schema)
    for _ in Archiver(job_of_all, lambda: session, print).run():
        pass


if __name__ == "__main__":
    main()
