"""Definition of a pipeline: source, transformation, target and schedule. Plain values.

`definition_of` reads a document in which `checking` has found no problems.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.declared.schedule import CONTINUOUS, PipelineSchedule, parse_duration_ms
from penstock.declared.value_schema import ValueSchema, parse_schema

STREAM, BATCH = "stream", "batch"


@dataclass(frozen=True, slots=True)
class PipelineSource:
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    archive: str | None = None
    start: str = "earliest"
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Transform:
    """Transformation of the rows: an SQL query over the table `source`, or a function `package.module:function` that
    takes a DataFrame.
    """

    sql: str | None = None
    function: str | None = None
    mode: str = STREAM
    watermark: tuple[str, str] | None = None
    """Time column, and the delay that late rows may have, such as `10 minutes`."""


@dataclass(frozen=True, slots=True)
class PipelineTarget:
    topic: str | None = None
    table: str | None = None
    archive: str | None = None
    chart: str | None = None
    keep_ms: int | None = None


@dataclass(frozen=True, slots=True)
class PipelineDefinition:
    name: str
    source: PipelineSource
    target: PipelineTarget
    schema: ValueSchema | None = None
    transform: Transform | None = None
    dead_letter: str | None = None
    schedule: PipelineSchedule = field(default_factory=PipelineSchedule)
    timeout_ms: int | None = None
    """Time in milliseconds after which a run of a scheduled pipeline, or one micro-batch, is stopped as hanging."""


def definition_of(document: Mapping[str, Any]) -> PipelineDefinition:
    """Read the document of one pipeline, which must be valid."""
    source, target = document["source"], document["target"]
    return PipelineDefinition(
        document["name"],
        PipelineSource(
            tuple(topics_in(source)),
            source.get("pattern"),
            source.get("archive"),
            source.get("start", "earliest"),
            {str(name): _text(value) for name, value in source.get("options", {}).items()},
        ),
        PipelineTarget(
            target.get("topic"),
            target.get("table"),
            target.get("archive"),
            target.get("chart"),
            parse_duration_ms(target["keep"]) if "keep" in target else None,
        ),
        parse_schema(document["schema"]) if "schema" in document else None,
        _transform(document["transform"]) if "transform" in document else None,
        document.get("dead_letter"),
        _schedule(document.get("schedule", CONTINUOUS)),
        parse_duration_ms(document["timeout"]) if "timeout" in document else None,
    )


def topics_in(source: Mapping[str, Any]) -> list[str]:
    """Topics of a source, given as a list or as a text with commas."""
    topics = source.get("topics", [])
    return [each.strip() for each in topics.split(",")] if isinstance(topics, str) else list(topics)


def _transform(given: Mapping[str, Any]) -> Transform:
    mark = given.get("watermark")
    watermark = None
    if mark is not None:
        watermark = (mark["column"], f"{parse_duration_ms(mark['delay'])} milliseconds")
    return Transform(given.get("sql"), given.get("function"), given.get("mode", STREAM), watermark)


def _schedule(given: Any) -> PipelineSchedule:
    if given == CONTINUOUS:
        return PipelineSchedule()
    if "every" in given:
        return PipelineSchedule(every_ms=parse_duration_ms(given["every"]))
    return PipelineSchedule(cron=given["cron"], timezone=given.get("timezone", "UTC"))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
