"""Number of offsets behind the end of the log, from progress reports of a streaming query.

Spark does not ask Python sources for metrics, so these metrics are missing in `sources[].metrics` of a report. The
names are those of Spark's Kafka source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.pipeline.positions import Position


def offsets_behind_latest(progress: Mapping[str, Any]) -> dict[str, str]:
    """Metrics of the first source of a report (`query.lastProgress`): `minOffsetsBehindLatest`,
    `maxOffsetsBehindLatest` and `avgOffsetsBehindLatest` over all partitions. Empty before the first batch.
    """
    source = progress["sources"][0]
    try:
        end, latest = _position(source["endOffset"]), _position(source["latestOffset"])
    except (KeyError, TypeError, ValueError):
        return {}
    behind = [max(0, offset - end.offsets.get(partition, 0)) for partition, offset in latest.offsets.items()]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }


def total_behind_latest(source: Mapping[str, Any]) -> int | None:
    """Total number of offsets between the position of a source and the ends of the logs; None if it is unknown."""
    try:
        end, latest = _position(source["endOffset"]), _position(source["latestOffset"])
    except (KeyError, TypeError, ValueError):
        return None
    return sum(max(0, offset - end.offsets.get(partition, 0)) for partition, offset in latest.offsets.items())


def _position(text: Any) -> Position:
    return Position.decode(json.loads(text) if isinstance(text, str) else text)
