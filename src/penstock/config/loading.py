"""Configuration sources of a broker: file, environment and command line, in increasing precedence.

The functions take text and mappings; callers read the files. Every error names the source of the value.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.config.broker_options import BROKER_OPTIONS
from penstock.config.kafka_properties import ignored, translated
from penstock.config.settings import BrokerConfig, broker_option
from penstock.errors import ConfigError

ENVIRONMENT_PREFIX = "PENSTOCK_"
CLIENT_VARIABLES = frozenset(
    {
        "PENSTOCK_BOOTSTRAP",
        "PENSTOCK_CA",
        "PENSTOCK_CERTIFICATE",
        "PENSTOCK_CONTEXT",
        "PENSTOCK_PASSWORD_FILE",
        "PENSTOCK_USER",
    }
)

# Variables that Kubernetes sets in every container if a service is called "penstock".
_SERVICE_LINK = re.compile(r"PENSTOCK_(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)")
_SERVICE_ADDRESS = re.compile(r"(tcp|udp)://")


@dataclass(frozen=True, slots=True)
class Loaded:
    """Effective configuration, with the source of each given option."""

    config: BrokerConfig
    places: Mapping[str, str]
    ignored: Mapping[str, str] = field(default_factory=dict)
    """Kafka options that were given and are ignored, with the reason."""


def load_broker_config(
    *,
    file: tuple[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    command_line: Mapping[str, str] | None = None,
    resolve: Callable[[str, str], str] = lambda name, text: text,
) -> Loaded:
    """Combine the sources. `file` is a file name, whose suffix decides the format, and its content. `resolve`
    takes the name and the text of a setting and replaces references to secrets.

    Raises ConfigError, which lists all invalid options, not only the first.
    """
    layers = [(file[0], parse_file(*file))] if file is not None else []
    layers.append(("environment", parse_environment(environment or {})))
    layers.append(("command line", dict(command_line or {})))
    values: dict[str, str] = {}
    places: dict[str, str] = {}
    without_effect: dict[str, str] = {}
    problems: list[str] = []
    for place, given in layers:
        without_effect |= ignored(given)
        refused: list[ConfigError] = []
        layer = _resolved(translated(given, refused), resolve, refused)
        refused += _wrong(layer)
        problems += [f"{place}: {error}" for error in refused]
        values |= layer
        places |= dict.fromkeys(layer, place)
    if problems:
        raise ConfigError("\n".join(problems))
    return Loaded(BrokerConfig(values), places, without_effect)


def _resolved(
    layer: Mapping[str, str], resolve: Callable[[str, str], str], problems: list[ConfigError]
) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, text in layer.items():
        try:
            values[name] = resolve(name, text)
        except ConfigError as error:
            problems.append(error)
    return values


def _wrong(layer: Mapping[str, str]) -> Iterator[ConfigError]:
    for name, text in layer.items():
        try:
            broker_option(name).parse(text)
        except ConfigError as error:
            yield error


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """Parse `name=value` arguments of a command line."""
    values = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"{assignment!r}: write name=value")
        values[name.strip()] = value.strip()
    return values


def parse_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Options from environment variables: `PENSTOCK_LOG_RETENTION_MS=5` sets log.retention.ms=5. Other
    variables are ignored.
    """
    return {
        variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", "."): value
        for variable, value in environment.items()
        if variable.startswith(ENVIRONMENT_PREFIX)
        and variable not in CLIENT_VARIABLES
        and not _SERVICE_LINK.fullmatch(variable)
        and not _SERVICE_ADDRESS.match(value)
    }


def parse_file(name: str, content: str) -> dict[str, str]:
    """Parse a file: TOML with the suffix `.toml`, otherwise Kafka's `name=value` lines."""
    return _parse_toml(name, content) if name.endswith(".toml") else _parse_properties(name, content)


def _parse_properties(name: str, content: str) -> dict[str, str]:
    values = {}
    for number, line in enumerate(content.splitlines(), start=1):
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        option, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(f"{name}, line {number}: {text[:60]!r} is not name=value")
        values[option.strip()] = value.strip()
    return values


def _parse_toml(name: str, content: str) -> dict[str, str]:
    try:
        return dict(_flatten(tomllib.loads(content), ""))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f'{name}: {error}; write names in quotes: "max.connections" = 100') from None


def _flatten(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, dict):
            yield from _flatten(value, f"{name}.")
        elif isinstance(value, list):
            yield name, ",".join(str(item) for item in value)
        elif isinstance(value, bool):
            yield name, str(value).lower()
        else:
            yield name, str(value)


def environment_variable(name: str) -> str:
    """Environment variable of the broker option `name`."""
    return ENVIRONMENT_PREFIX + BROKER_OPTIONS[name].name.upper().replace(".", "_")
