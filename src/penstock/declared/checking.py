"""Validation of a document with pipelines. Finds all problems, each with the JSON pointer of the invalid value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from penstock.declared.definition import BATCH, STREAM, topics_in
from penstock.declared.problems import DefinitionProblem, Problems, SchemaProblem, below, shown
from penstock.declared.schedule import CONTINUOUS, ScheduleProblem, check_cron, parse_duration_ms
from penstock.declared.value_schema import parse_schema

PIPELINES = "pipelines"
NAMES = (
    "name",
    "description",
    "source",
    "schema",
    "transform",
    "dead_letter",
    "target",
    "schedule",
    "timeout",
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


def check_document(document: Any) -> list[DefinitionProblem]:
    """Return the problems of a document `{pipelines: [...]}`."""
    problems = Problems()
    values = problems.mapping(document, "", (PIPELINES,))
    listed = values.get(PIPELINES)
    if not isinstance(listed, list) or not listed:
        if isinstance(document, Mapping):
            problems.add(f"/{PIPELINES}" if PIPELINES in document else "", "give a list of pipelines")
        return problems.found
    for place, each in enumerate(listed):
        _check_pipeline(each, f"/{PIPELINES}/{place}", problems)
    _check_together(listed, problems)
    return problems.found


def check_pipeline(document: Any) -> list[DefinitionProblem]:
    """Return the problems of one pipeline."""
    problems = Problems()
    _check_pipeline(document, "", problems)
    return problems.found


def _check_pipeline(given: Any, pointer: str, problems: Problems) -> None:
    values = problems.mapping(given, pointer, NAMES)
    if not isinstance(given, Mapping):
        return
    for needed in ("name", "source", "target"):
        if needed not in given:
            problems.add(pointer, f"{needed} is missing")
    name = problems.text(values, "name", pointer)
    if name is not None and not _NAME.fullmatch(name):
        problems.add(
            f"{pointer}/name", f"{name!r} is not a name: use letters, digits, dots, dashes and underscores"
        )
    problems.text(values, "description", pointer)
    if "source" in values:
        _check_source(values["source"], f"{pointer}/source", problems)
    if "schema" in values:
        _check_schema(values["schema"], f"{pointer}/schema", problems)
    if "transform" in values:
        _check_transform(values["transform"], f"{pointer}/transform", problems)
    if "target" in values:
        _check_target(values, f"{pointer}/target", problems)
    _check_topic(values, "dead_letter", pointer, problems)
    if "dead_letter" in values and "schema" not in values:
        problems.add(
            f"{pointer}/dead_letter", "dead_letter needs a schema: it takes the rows that do not match"
        )
    if "schedule" in values:
        _check_schedule(values["schedule"], f"{pointer}/schedule", problems)
    _check_duration(values, "timeout", pointer, problems)
    _check_loop(values, pointer, problems)


def _check_source(given: Any, pointer: str, problems: Problems) -> None:
    values = problems.mapping(given, pointer, ("topics", "pattern", "archive", "start", "options"))
    if not isinstance(given, Mapping):
        return
    if ("topics" in values) == ("pattern" in values):
        problems.add(pointer, "give either topics or pattern")
    if "topics" in values:
        _check_topics(values["topics"], f"{pointer}/topics", problems)
    pattern = problems.text(values, "pattern", pointer)
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            problems.add(f"{pointer}/pattern", f"{pattern!r} is not a regular expression ({error})")
    problems.text(values, "archive", pointer)
    if values.get("start", "earliest") not in ("earliest", "latest"):
        problems.add(f"{pointer}/start", f"give earliest or latest, not {shown(values['start'])}")
    options = values.get("options", {})
    if not isinstance(options, Mapping) or any(
        isinstance(each, Mapping | list) or each is None for each in options.values()
    ):
        problems.add(
            f"{pointer}/options", "give a mapping of options of the source, such as maxOffsetsPerTrigger"
        )


def _check_topics(given: Any, pointer: str, problems: Problems) -> None:
    if not isinstance(given, str | list) or not given:
        problems.add(pointer, f"give a list of topics, not {shown(given)}")
        return
    for place, each in enumerate(topics_in({"topics": given})):
        if not isinstance(each, str) or not _TOPIC.fullmatch(each):
            where = pointer if isinstance(given, str) else below(pointer, place)
            problems.add(where, f"{shown(each)} is not a topic name")


def _check_schema(given: Any, pointer: str, problems: Problems) -> None:
    if not isinstance(given, str | Mapping) or not given:
        problems.add(
            pointer, f"give a JSON Schema, an Avro schema, or columns such as `id bigint`, not {shown(given)}"
        )
        return
    try:
        parse_schema(given)
    except SchemaProblem as error:
        problems.add(pointer + (error.pointer if isinstance(given, Mapping) else ""), str(error))


def _check_transform(given: Any, pointer: str, problems: Problems) -> None:
    values = problems.mapping(given, pointer, ("sql", "function", "mode", "watermark"))
    if not isinstance(given, Mapping):
        return
    if ("sql" in values) == ("function" in values):
        problems.add(pointer, "give either sql or function")
    problems.text(values, "sql", pointer)
    function = problems.text(values, "function", pointer)
    if function is not None and not _FUNCTION.fullmatch(function):
        problems.add(f"{pointer}/function", f"{function!r} is not a function: write package.module:function")
    if values.get("mode", STREAM) not in (STREAM, BATCH):
        problems.add(f"{pointer}/mode", f"give {STREAM} or {BATCH}, not {shown(values['mode'])}")
    if "watermark" in values:
        where = f"{pointer}/watermark"
        mark = problems.mapping(values["watermark"], where, ("column", "delay"))
        for name in ("column", "delay"):
            if isinstance(values["watermark"], Mapping) and name not in mark:
                problems.add(where, f"{name} is missing")
        problems.text(mark, "column", where)
        _check_duration(mark, "delay", where, problems)
        if values.get("mode") == BATCH:
            problems.add(where, "a watermark needs mode: stream")


def _check_target(pipeline: Mapping[str, Any], pointer: str, problems: Problems) -> None:
    given = pipeline["target"]
    values = problems.mapping(given, pointer, ("topic", "table", "archive", "chart", "keep"))
    if not isinstance(given, Mapping):
        return
    if not values.keys() & {"topic", "table", "archive"}:
        problems.add(pointer, "give a topic, a table, both, or an archive")
    _check_topic(values, "topic", pointer, problems)
    for name in ("table", "archive", "chart"):
        problems.text(values, name, pointer)
    if "archive" in values:
        if values.keys() & {"topic", "table"}:
            problems.add(f"{pointer}/archive", "an archive is the only target of its pipeline")
        for name in ("transform", "dead_letter"):
            if name in pipeline:
                problems.add(f"{pointer}/archive", f"an archive stores records unchanged: remove {name}")
        source = pipeline.get("source")
        if isinstance(source, Mapping) and "archive" in source:
            problems.add(
                f"{pointer}/archive", "an archive cannot be archived: remove the archive of the source"
            )
    elif "keep" in values:
        problems.add(f"{pointer}/keep", "keep needs an archive as the target")
    if "chart" in values and "table" not in values:
        problems.add(f"{pointer}/chart", "a chart needs a table: add table")
    _check_duration(values, "keep", pointer, problems)


def _check_schedule(given: Any, pointer: str, problems: Problems) -> None:
    if given == CONTINUOUS:
        return
    values = problems.mapping(given, pointer, ("every", "cron", "timezone"))
    if not isinstance(given, Mapping):
        return
    if ("every" in values) == ("cron" in values):
        problems.add(pointer, "give either every or cron, or write `schedule: continuous`")
    _check_duration(values, "every", pointer, problems)
    cron = problems.text(values, "cron", pointer)
    timezone = problems.text(values, "timezone", pointer) or "UTC"
    if "timezone" in values and "cron" not in values:
        problems.add(f"{pointer}/timezone", "timezone needs cron")
    for name, text, zone in (("cron", cron or "* * * * *", "UTC"), ("timezone", "* * * * *", timezone)):
        try:
            check_cron(text, zone)
        except ScheduleProblem as error:
            problems.add(f"{pointer}/{name}", str(error))


def _check_duration(values: Mapping[str, Any], name: str, pointer: str, problems: Problems) -> None:
    if name in values:
        try:
            parse_duration_ms(values[name])
        except ScheduleProblem as error:
            problems.add(f"{pointer}/{name}", str(error))


def _check_topic(values: Mapping[str, Any], name: str, pointer: str, problems: Problems) -> None:
    topic = problems.text(values, name, pointer)
    if topic is not None and not _TOPIC.fullmatch(topic):
        problems.add(f"{pointer}/{name}", f"{topic!r} is not a topic name")


def _check_loop(values: Mapping[str, Any], pointer: str, problems: Problems) -> None:
    """Check that the pipeline does not read a topic that it writes."""
    source, target = values.get("source"), values.get("target")
    if not isinstance(source, Mapping):
        return
    written = {"dead_letter": values.get("dead_letter")}
    if isinstance(target, Mapping):
        written["target/topic"] = target.get("topic")
    for where, topic in written.items():
        if isinstance(topic, str) and _reads(source, topic):
            problems.add(f"{pointer}/{where}", f"the pipeline reads {topic!r}, so it must not write to it")


def _reads(source: Mapping[str, Any], topic: str) -> bool:
    if isinstance(source.get("topics"), str | list):
        return topic in topics_in(source)
    try:
        return isinstance(source.get("pattern"), str) and re.fullmatch(source["pattern"], topic) is not None
    except re.error:
        return False


def _check_together(listed: list[Any], problems: Problems) -> None:
    """Check that names are unique, and that no two pipelines write to the same table or archive."""
    names: dict[str, int] = {}
    places: dict[str, str] = {}
    for number, each in enumerate(listed):
        if not isinstance(each, Mapping):
            continue
        pointer, name, target = f"/{PIPELINES}/{number}", each.get("name"), each.get("target")
        if isinstance(name, str) and names.setdefault(name, number) != number:
            problems.add(f"{pointer}/name", f"two pipelines have the name {name!r}")
        for kind in ("table", "archive"):
            place = target.get(kind) if isinstance(target, Mapping) else None
            if isinstance(place, str) and places.setdefault(place, pointer) != pointer:
                problems.add(f"{pointer}/target/{kind}", f"another pipeline writes to {place} too")
