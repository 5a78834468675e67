"""Checks of the tables that the jobs of `job_kills` write: consistent at any time, and complete at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from archive_helpers import digest, numbers, read_topic, rows
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from deltalake import DeltaTable

from penstock.pipeline.table_store import storage_options, store_at

KEYS = 10
WINDOW = 60
"""Number of records in an hour: they are a minute apart."""


class Tables:
    def __init__(self, bootstrap: str, root: str, checkpoint: Path) -> None:
        self.written = 0
        """Number of records in the topics."""
        self.archive = f"{root}/archive"
        self._bootstrap = bootstrap
        self._latest = f"{root}/latest"
        self._stats = f"{root}/stats"
        self._checkpoint = checkpoint

    def jobs(self) -> list[list[str]]:
        of_all = ["--topics", "source", "--archive", self.archive]
        counted = ["--topics", "counted", "--window", "1h", "--to-topic", "counts"]
        return [
            ["archive", "--topics", "source", "--to", self.archive, "--truncate", "--grace", "0s"],
            ["replay", *of_all, "--to", "target", "--name", "kills"],
            ["compact", *of_all, "--to", self._latest],
            ["stats", *counted, "--to", self._stats, "--checkpoint", str(self._checkpoint)],
        ]

    def check_whole(self) -> str:
        """Check that the table of last values is a consistent state, and that windows are complete and in
        order.
        """
        latest = numbers(table_rows(self._latest))
        if latest:
            end = latest[-1] + 1
            assert latest == list(range(end - KEYS, end)), latest
        windows = table_rows(self._stats)
        _check_windows(windows)
        return f"{latest[-1] + 1 if latest else 0} compacted, {len(windows)} windows"

    def are_right(self) -> bool:
        self.check_whole()
        wanted = digest(b"value %d" % number for number in range(self.written))
        archived = [row["value"] for row in rows(self.archive)]
        replayed = [b"value %d" % record.number for record in read_topic(self._bootstrap, "target")]
        counts = told(self._bootstrap, "counts")
        _check_windows(counts)
        # A window is closed by a record one minute after its end.
        windows = (self.written - 2) // WINDOW
        found = {
            "archive": len(archived) == self.written and digest(archived) == wanted,
            "target": len(replayed) == self.written and digest(replayed) == wanted,
            "latest": max(numbers(table_rows(self._latest))) == self.written - 1,
            "stats": len(table_rows(self._stats)) == windows,
            "counts": len(counts) == windows,
        }
        print(f"{len(archived)} archived, {len(replayed)} replayed of {self.written}; {windows} windows")
        for name, is_right in found.items():
            print(f"{name}: {'each once' if is_right else 'WRONG'}")
        return all(found.values())


def _check_windows(windows: list[dict[str, Any]]) -> None:
    assert len({window["window_start"] for window in windows}) == len(windows), "a window is there twice"
    assert [window for window in windows if window["records"] != WINDOW] == []


def table_rows(place: str) -> list[dict[str, Any]]:
    """Rows of a table; none if there is no table."""
    options = storage_options(store_at(place))
    if not DeltaTable.is_deltatable(place, options):
        return []
    found: list[dict[str, Any]] = DeltaTable(place, storage_options=options).to_pyarrow_table().to_pylist()
    return found


def told(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """All committed records of a topic with one partition."""
    settings = {"isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "told", **settings})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append(json.loads(message.value()))
    consumer.close()
    assert message is not None
    assert message.error().code() == KafkaError._PARTITION_EOF
    return found
