"""Rows of an offset range, read in a task, and the handling of offsets that are deleted during the read."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from penstock.pipeline.fetching import OffsetsLost, read_range
from penstock.pipeline.offsets import NoSuchTopic, end_offsets_of
from penstock.pipeline.options import EARLIEST, SourceOptions
from penstock.pipeline.ranges import OffsetRange
from penstock.pipeline.read_settings import ReadSettings


def read_rows(options: SourceOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Rows of a range, read in a task. With failOnDataLoss=false, offsets that are deleted during the read
    are skipped with a warning, and so is the rest of the range if its topic is deleted.
    """
    read_settings = ReadSettings(options.bootstrap, options.read_committed)
    while True:
        following = wanted.start
        try:
            for rows in read_range(read_settings, wanted, with_offset(options.columns)):
                following = rows.column("offset")[-1].as_py() + 1
                yield rows.select(list(options.columns))
        except OffsetsLost as error:
            if options.fails_on_data_loss:
                raise
            warn(str(error))
            earliest = _log_start(read_settings, wanted)
            if earliest is None or earliest <= following:
                return  # the topic was deleted, or its end moved back: the range has no offsets left
            wanted = replace(wanted, start=earliest)
            if not len(wanted):
                return
        else:
            return


def _log_start(read_settings: ReadSettings, wanted: OffsetRange) -> int | None:
    """Log start offset of the partition; None if the topic no longer exists."""
    try:
        [earliest] = end_offsets_of(read_settings, [(wanted.topic, wanted.partition)], EARLIEST).values()
    except NoSuchTopic:
        return None
    return earliest


def with_offset(columns: tuple[str, ...]) -> tuple[str, ...]:
    return columns if "offset" in columns else (*columns, "offset")


def warn(what: str) -> None:
    warnings.warn(f"data loss: {what}", stacklevel=2)
