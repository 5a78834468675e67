"""Option: a configuration entry with name, type, default and description, declared once.

Validation, DescribeConfigs, docs/configuration.md, files, environment and command line are derived from the
declarations in the `*_options` modules.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from penstock.config.types import Kind, ValueType
from penstock.errors import ConfigError

T = TypeVar("T")

SHOWN_VALUE_CHARACTERS = 60


@dataclass(frozen=True, slots=True, eq=False)
class Option(Generic[T]):
    name: str
    type: ValueType[T]
    default: T
    doc: str
    dynamic: bool = False
    """True if the option can be changed while the broker runs."""
    sensitive: bool = False
    """True if the value is hidden in errors, logs and responses."""
    synonym: Option[T] | None = None
    """Broker option that provides the default of an option of a topic or group."""

    @property
    def kind(self) -> Kind:
        return self.type.kind

    def parse(self, text: str) -> T:
        try:
            return self.type.parse(text.strip())
        except ValueError:
            raise ConfigError(f"{self.name}={self.show(text)}: give {self.type.expected}") from None

    def format(self, value: T) -> str:
        return self.type.format(value)

    def show(self, text: str) -> str:
        """Return the value in the form for messages: hidden if the option is sensitive."""
        if self.sensitive:
            return "(hidden)"
        return repr(text if len(text) <= SHOWN_VALUE_CHARACTERS else text[:SHOWN_VALUE_CHARACTERS] + "...")


@dataclass(slots=True)
class OptionGroup:
    """Options of one section of the documentation, in the order of their declaration."""

    title: str
    options: list[Option[Any]] = field(default_factory=list)

    def option(
        self,
        name: str,
        type: ValueType[T],
        default: T,
        doc: str,
        *,
        dynamic: bool = False,
        sensitive: bool = False,
        synonym: Option[T] | None = None,
    ) -> Option[T]:
        option = Option(name, type, default, doc, dynamic, sensitive, synonym)
        self.options.append(option)
        return option


def table(options: Iterable[Option[Any]]) -> Mapping[str, Option[Any]]:
    by_name: dict[str, Option[Any]] = {}
    for option in options:
        if option.name in by_name:
            raise ValueError(f"{option.name} is declared twice")
        by_name[option.name] = option
    return by_name


def find(options: Mapping[str, Option[Any]], name: str, what: str) -> Option[Any]:
    """Return the option with this name. Raises ConfigError, which suggests a similar name; `what` is the kind of
    setting in the error.
    """
    option = options.get(name)
    if option is not None:
        return option
    shown = repr(name[:SHOWN_VALUE_CHARACTERS])
    likely = difflib.get_close_matches(name[:SHOWN_VALUE_CHARACTERS], options, n=1, cutoff=0.7)
    hint = f"did you mean {likely[0]}?" if likely else "`penstock config show --docs` lists them all"
    raise ConfigError(f"{shown} is not a {what} setting; {hint}")
