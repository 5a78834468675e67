"""Options of the source, checked before anything is read. Names and meaning are those of Spark's own Kafka source."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from penstock.config import parse_address
from penstock.declared.problems import SchemaProblem
from penstock.declared.schedule import ScheduleProblem, parse_duration_ms
from penstock.declared.value_schema import ValueSchema, parse_schema
from penstock.errors import PenstockError
from penstock.pipeline.catalog_options import is_of_catalog, without_catalog
from penstock.pipeline.columns import ALL, BASIC, CRC, CREATE_TIMESTAMP, SIZE
from penstock.pipeline.kafka_security import NAMES as SECURITY_NAMES
from penstock.pipeline.kafka_security import SecurityOptionError, with_security
from penstock.pipeline.ranges import OffsetRange, split

VALUE_SCHEMA = "valueSchema"
EARLIEST, LATEST = -2, -1
"""Special timestamps of Kafka's ListOffsets for the two ends of a partition."""

Partitions = Mapping[str, Mapping[int, int]]
"""Offsets or timestamps by topic and partition."""


class OptionError(PenstockError):
    """An option is missing, unknown or wrong."""


class SubscriptionKind(Enum):
    NAMES = "subscribe"
    PATTERN = "subscribePattern"
    ASSIGN = "assign"


@dataclass(frozen=True, slots=True)
class Bound:
    """Start or end position of a read: one end of the log for all partitions, offsets, or timestamps."""

    at: int = EARLIEST
    """Position of partitions for which neither offset nor timestamp is given: EARLIEST or LATEST."""
    offsets: Partitions | None = None
    time_ms: int | None = None
    times: Partitions | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    bootstrap: str
    subscription: SubscriptionKind
    topics: tuple[str, ...]
    """Topic names; for a pattern, the pattern as the only element."""
    assigned: Mapping[str, tuple[int, ...]]
    start: Bound | None
    end: Bound | None
    columns: tuple[str, ...]
    read_committed: bool
    fails_on_data_loss: bool
    min_partitions: int
    max_offsets_per_trigger: int | None
    latest_where_time_has_none: bool
    pushes_filters: bool
    archive: str | None
    in_order: bool
    """True if each partition is read by one task, with rows in offset order."""
    value_schema: ValueSchema | None = None
    hides_value: bool = False
    """True if the column `value` is read only to compute the typed columns, and is not part of the result."""
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    """Time since the last batch after which a batch starts although it has fewer offsets than
    `min_offsets_per_trigger`.
    """
    max_records_per_partition: int | None = None
    """Largest number of offsets in one task; None for no limit."""

    def split(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Split ranges into one or more parts for tasks."""
        return split(ranges, self.min_partitions, self.max_records_per_partition)


_KNOWN = {
    name.lower(): name
    for name in (
        "kafka.bootstrap.servers",
        "bootstrap",
        "subscribe",
        "subscribePattern",
        "assign",
        "startingOffsets",
        "endingOffsets",
        "startingTimestamp",
        "endingTimestamp",
        "startingOffsetsByTimestamp",
        "endingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "maxOffsetsPerTrigger",
        "minPartitions",
        "includeHeaders",
        "failOnDataLoss",
        "kafka.isolation.level",
        "columns",
        "filterPushdown",
        "archive",
        "inOrder",
        VALUE_SCHEMA,
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "maxRecordsPerPartition",
        *SECURITY_NAMES,
    )
}
_WITHOUT_MEANING = frozenset(
    name.lower()
    for name in (
        "kafka.group.id",
        "groupIdPrefix",
        "kafka.client.id",
        "kafka.fetch.max.bytes",
        "kafka.fetch.min.bytes",
        "kafka.fetch.max.wait.ms",
        "kafka.max.poll.records",
        "kafka.max.partition.fetch.bytes",
        "kafka.request.timeout.ms",
        "kafka.session.timeout.ms",
        "kafka.heartbeat.interval.ms",
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "path",
    )
)
"""Options of Spark's source that are accepted and ignored: this source has no consumer, and chooses its own fetch
sizes.
"""

_OF_TABLES = ("topic", "kafka.compression.type")
"""Options for writing that a table of Spark's catalog may also have; ignored by reads."""

_REFUSED = {
    "kafka.auto.offset.reset": "set startingOffsets",
    "kafka.enable.auto.commit": "the checkpoint of the query has its offsets",
    "kafka.key.deserializer": "keys are bytes: cast them in the query",
    "kafka.value.deserializer": "values are bytes: cast them, or set valueSchema",
    "kafka.interceptor.classes": "there is no Java consumer that could call them",
}
"""Options that are refused, because Spark's source refuses them too or because they have no meaning here, with advice
for the user.
"""


def parse(given: Mapping[str, str]) -> SourceOptions:
    options = without_catalog(given)
    if is_of_catalog(given):
        options = {name: value for name, value in options.items() if name not in _OF_TABLES}
    for name in sorted(options.keys() & _REFUSED.keys()):
        raise OptionError(f"the option {name} is not supported: {_REFUSED[name]}")
    unknown = sorted(options.keys() - _KNOWN.keys() - _WITHOUT_MEANING)
    if unknown:
        named = f"option{'s' if len(unknown) > 1 else ''} {', '.join(map(repr, unknown))}"
        raise OptionError(f"unknown {named}; known options: {', '.join(sorted(_KNOWN.values()))}")
    values = {_KNOWN[name]: value for name, value in options.items() if name in _KNOWN}
    subscription, topics, assigned = _subscription(values)
    headers = _flag(values, "includeHeaders", False)
    return SourceOptions(
        bootstrap_of(values),
        subscription,
        topics,
        assigned,
        _bound(values, "starting"),
        _bound(values, "ending"),
        _columns(values, headers),
        _isolation(values),
        _flag(values, "failOnDataLoss", True),
        number_of(values, "minPartitions") or 1,
        number_of(values, "maxOffsetsPerTrigger"),
        choice_of(values, "startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        _flag(values, "filterPushdown", False),
        values.get("archive"),
        _flag(values, "inOrder", False),
        *_typed(values),
        number_of(values, "minOffsetsPerTrigger"),
        _delay_ms(values),
        number_of(values, "maxRecordsPerPartition") or None,
    )


def is_for_reading(name: str) -> bool:
    """Return True if the source has an option of this name, which is in lower case."""
    return name in _KNOWN or name in _WITHOUT_MEANING


def _delay_ms(values: Mapping[str, str]) -> int:
    text = values.get("maxTriggerDelay", "15m").strip()
    try:
        return parse_duration_ms(text)
    except ScheduleProblem as error:
        raise OptionError(f"maxTriggerDelay: {error}") from None


def _typed(values: Mapping[str, str]) -> tuple[ValueSchema | None, bool]:
    if VALUE_SCHEMA not in values:
        return None, False
    try:
        schema = parse_schema(values[VALUE_SCHEMA])
    except SchemaProblem as error:
        raise OptionError(f"{VALUE_SCHEMA}: {error}") from None
    names = [name.strip() for name in values.get("columns", "value").split(",")]
    return schema, "value" not in names


def bootstrap_of(values: Mapping[str, str]) -> str:
    text = values.get("kafka.bootstrap.servers") or values.get("bootstrap")
    if not text:
        raise OptionError("name the brokers with the option kafka.bootstrap.servers=HOST:PORT[,HOST:PORT]")
    for each in text.split(","):
        try:
            parse_address(each.strip())
        except ValueError:
            raise OptionError(f"kafka.bootstrap.servers: {each.strip()!r} is not HOST:PORT") from None
    try:
        return with_security(text, values)
    except SecurityOptionError as error:
        raise OptionError(str(error)) from None


def _subscription(
    values: Mapping[str, str],
) -> tuple[SubscriptionKind, tuple[str, ...], Mapping[str, tuple[int, ...]]]:
    chosen = [each for each in SubscriptionKind if each.value in values]
    if len(chosen) != 1:
        raise OptionError("give one of the options subscribe, subscribePattern and assign, and only one")
    [kind] = chosen
    text = values[kind.value]
    if kind is SubscriptionKind.PATTERN:
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(
                f"subscribePattern: {text!r} is not a valid regular expression ({error})"
            ) from None
        return kind, (text,), {}
    if kind is SubscriptionKind.NAMES:
        names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not names:
            raise OptionError("subscribe: name one topic or more")
        return kind, names, {}
    found = _json(values, "assign")
    if not isinstance(found, dict) or not all(
        isinstance(numbers, list) and all(type(number) is int for number in numbers)
        for numbers in found.values()
    ):
        raise OptionError('assign: give {"topic": [0, 1]}')
    return kind, tuple(found), {name: tuple(numbers) for name, numbers in found.items()}


def _bound(values: Mapping[str, str], which: str) -> Bound | None:
    by_times, time, offsets = (
        f"{which}OffsetsByTimestamp",
        f"{which}Timestamp",
        f"{which}Offsets",
    )
    end = LATEST if which == "ending" else EARLIEST
    if time in values:
        return Bound(end, time_ms=number_of(values, time))
    if by_times in values:
        return Bound(end, times=_partitions(values, by_times))
    if offsets not in values:
        return None
    text = values[offsets].strip().lower()
    if text in ("earliest", "latest"):
        if which == "ending" and text == "earliest":
            raise OptionError("endingOffsets: earliest is not an end; give latest or offsets")
        return Bound(EARLIEST if text == "earliest" else LATEST)
    return Bound(end, offsets=_partitions(values, offsets))


def _partitions(values: Mapping[str, str], name: str) -> Partitions:
    found = _json(values, name)
    try:
        return {
            topic: {int(partition): _integer(offset) for partition, offset in partitions.items()}
            for topic, partitions in found.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise OptionError(f'{name}: give earliest, latest or {{"topic": {{"0": 23, "1": -2}}}}') from None


def _integer(value: object) -> int:
    if type(value) is not int:
        raise TypeError(value)
    return value


def _json(values: Mapping[str, str], name: str) -> Any:
    try:
        return json.loads(values[name])
    except ValueError as error:
        raise OptionError(f"{name}: not valid JSON ({error})") from None


def _columns(values: Mapping[str, str], headers: bool) -> tuple[str, ...]:
    if "columns" not in values:
        return ALL if headers else BASIC
    names = tuple(name.strip() for name in values["columns"].split(","))
    known = (*ALL, CREATE_TIMESTAMP, SIZE, CRC)
    if set(names) - set(known) or len(set(names)) < len(names):
        raise OptionError(f"columns: give some of {', '.join(known)}, each once")
    if CREATE_TIMESTAMP in names and "archive" in values:
        raise OptionError(f"columns: {CREATE_TIMESTAMP} is not archived")
    if VALUE_SCHEMA in values and "value" not in names:
        return (*names, "value")  # read, but not part of the result
    return names


def _isolation(values: Mapping[str, str]) -> bool:
    chosen = choice_of(values, "kafka.isolation.level", ("read_committed", "read_uncommitted"))
    return chosen != "read_uncommitted"


def choice_of(values: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    value = values.get(name, choices[0]).lower()
    if value not in choices:
        raise OptionError(f"{name}: give {' or '.join(choices)}, not {value!r}")
    return value


def _flag(values: Mapping[str, str], name: str, default: bool) -> bool:
    return choice_of(values, name, ("true", "false") if default else ("false", "true")) == "true"


def number_of(values: Mapping[str, str], name: str) -> int | None:
    if name not in values:
        return None
    text = values[name].strip()
    if not text.isascii() or not text.isdigit():
        raise OptionError(f"{name}: give a whole number, not {text!r}")
    return int(text)
