"""Configs of a broker, a topic or a group: immutable, validated, and with the source of each value.

`config[OPTION]` is the effective value. For a broker: its dynamic override, else its startup value, else the default.
For a topic or group: its own override, else the broker's value of the synonym.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar, cast

from penstock.config import broker_options as broker
from penstock.config import group_options as group
from penstock.config import share_options as share
from penstock.config import topic_options as topic
from penstock.config.connection_options import CONNECTIONS, SOCKET_REQUEST_MAX_BYTES
from penstock.config.listeners import PREFIX, ListenerEndpoint, ListenerPlan, make_plan
from penstock.config.options import Option, OptionGroup, find
from penstock.config.sasl_options import SASL
from penstock.config.tls_options import TLS
from penstock.config.topic_values import Durability
from penstock.errors import ConfigError
from penstock.model import Address

T = TypeVar("T")

_MISSING: Any = object()

HTTP_LISTENER = "HTTP"
"""Listener name of HTTP in the names of options for one listener."""
LISTENER_GROUPS: tuple[OptionGroup, ...] = (CONNECTIONS, TLS, SASL)
"""Groups of the options that can be set for one listener."""


class ConfigSource(IntEnum):
    """Sources of a value, with Kafka's codes in DescribeConfigs."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class Synonym:
    """Value of an option from one source. The first synonym of a list is the effective one, as in DescribeConfigs."""

    name: str
    value: str
    source: ConfigSource


class BrokerConfig:
    """Config of a broker: startup values (`static`) overridden by dynamic values (`overrides`)."""

    __slots__ = ("_of_listeners", "_overrides", "_static", "_values", "listeners", "overrides", "static")

    def __init__(
        self, static: Mapping[str, str] | None = None, overrides: Mapping[str, str] | None = None
    ) -> None:
        self.static: Mapping[str, str] = MappingProxyType(dict(static or {}))
        self.overrides: Mapping[str, str] = MappingProxyType(dict(overrides or {}))
        self._static = {name: broker_option(name).parse(text) for name, text in self.static.items()}
        self._overrides = {name: _dynamic_option(name).parse(text) for name, text in self.overrides.items()}
        self._values = {option: option.default for option in broker.BROKER_OPTIONS.values()}
        self._of_listeners: dict[str, dict[str, Any]] = {}
        for name, value in (self._static | self._overrides).items():
            if name.startswith(PREFIX):
                listener, _, option_name = name.removeprefix(PREFIX).partition(".")
                self._of_listeners.setdefault(listener.upper(), {})[option_name] = value
            else:
                self._values[broker.BROKER_OPTIONS[name]] = value
        self.listeners = self._plan_listeners()
        _check_broker(self)

    def __getitem__(self, option: Option[T]) -> T:
        return cast(T, self._values[option])

    def with_overrides(self, overrides: Mapping[str, str]) -> BrokerConfig:
        """Return the same config with other dynamic values."""
        return BrokerConfig(self.static, overrides)

    def source(self, option: Option[Any]) -> ConfigSource:
        return next(self.synonyms(option)).source

    def synonyms(self, option: Option[Any]) -> Iterator[Synonym]:
        """Yield the values of an option from all sources, the effective one first."""
        for values, source in (
            (self._overrides, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self._static, ConfigSource.STATIC_BROKER_CONFIG),
        ):
            if option.name in values:
                yield Synonym(option.name, option.format(values[option.name]), source)
        yield Synonym(option.name, option.format(option.default), ConfigSource.DEFAULT_CONFIG)

    def for_listener(self, name: str) -> ListenerConfig:
        """Config of one listener: the options that are set for it, and the broker's values for the others."""
        return ListenerConfig(self, self._of_listeners.get(name, {}))

    def _plan_listeners(self) -> ListenerPlan:
        short = (ListenerEndpoint("PLAINTEXT", Address(self[broker.HOST], self[broker.PORT])),)
        bound = self[broker.LISTENERS]
        plan = make_plan(
            short if bound is None else bound,
            self[broker.LISTENER_SECURITY_PROTOCOL_MAP],
            self[broker.ADVERTISED_LISTENERS],
            self[broker.INTER_BROKER_LISTENER_NAME],
        )
        names = {listener.name for listener in plan} | {HTTP_LISTENER}
        for name in self._of_listeners.keys() - names:
            raise ConfigError(
                f"{PREFIX}{name.lower()}: there is no such listener; the listeners are {', '.join(sorted(names))}"
            )
        return plan


class ListenerConfig:
    """Config of one listener of a broker."""

    __slots__ = ("_broker", "_own")

    def __init__(self, broker: BrokerConfig, own: Mapping[str, Any]) -> None:
        self._broker = broker
        self._own = own

    def __getitem__(self, option: Option[T]) -> T:
        value = self._own.get(option.name, _MISSING)
        return self._broker[option] if value is _MISSING else cast(T, value)


class OwnConfig:
    """Config of a topic or group: its own overrides, and the broker's values for the others."""

    __slots__ = ("_broker", "_overrides", "overrides")
    options: ClassVar[Mapping[str, Option[Any]]]
    own_source: ClassVar[ConfigSource]
    kind: ClassVar[str]

    def __init__(self, broker: BrokerConfig, overrides: Mapping[str, str] | None = None) -> None:
        self.overrides: Mapping[str, str] = MappingProxyType(dict(overrides or {}))
        self._broker = broker
        self._overrides = {
            name: find(self.options, name, self.kind).parse(text) for name, text in self.overrides.items()
        }

    def __getitem__(self, option: Option[T]) -> T:
        value = self._overrides.get(option.name, _MISSING)
        if value is not _MISSING:
            return cast(T, value)
        return option.default if option.synonym is None else self._broker[option.synonym]

    def own(self) -> dict[str, str]:
        """Values that were set on the topic or group itself, by option name, without secrets."""
        options = self.options
        return {
            name: options[name].format(value)
            for name, value in sorted(self._overrides.items())
            if not options[name].sensitive
        }

    def source(self, option: Option[Any]) -> ConfigSource:
        return next(self.synonyms(option)).source

    def synonyms(self, option: Option[Any]) -> Iterator[Synonym]:
        """Yield the values of an option from all sources, the effective one first."""
        if option.name in self._overrides:
            value = option.format(self._overrides[option.name])
            yield Synonym(option.name, value, self.own_source)
        if option.synonym is not None:
            yield from self._broker.synonyms(option.synonym)
        else:
            yield Synonym(option.name, option.format(option.default), ConfigSource.DEFAULT_CONFIG)


class TopicConfig(OwnConfig):
    __slots__ = ()
    options = topic.TOPIC_OPTIONS
    own_source = ConfigSource.DYNAMIC_TOPIC_CONFIG
    kind = "topic"

    def __init__(self, broker: BrokerConfig, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(broker, overrides)
        _check_compaction_lag(self[topic.MIN_COMPACTION_LAG_MS], self[topic.MAX_COMPACTION_LAG_MS], "")

    @property
    def durability(self) -> Durability:
        """Durability of acknowledged records. `fsync` if `flush.messages` or `flush.ms` is set, because these options
        limit how many records, or for how long, are not synced to disk.
        """
        limits = (topic.FLUSH_MESSAGES, topic.FLUSH_MS)
        if any(self[limit] != limit.default for limit in limits):
            return Durability.FSYNC
        return self[topic.DURABILITY]


class GroupConfig(OwnConfig):
    __slots__ = ()
    options = share.GROUP_OPTIONS
    own_source = ConfigSource.DYNAMIC_GROUP_CONFIG
    kind = "group"

    def check(self) -> None:
        """Raise ConfigError if the values contradict each other. A change of the broker's defaults can also
        cause this.
        """
        for heartbeat, session in (
            (group.CONSUMER_HEARTBEAT_INTERVAL_MS, group.CONSUMER_SESSION_TIMEOUT_MS),
            (share.SHARE_HEARTBEAT_INTERVAL_MS, share.SHARE_SESSION_TIMEOUT_MS),
        ):
            if self[heartbeat] >= self[session]:
                raise ConfigError(
                    f"{heartbeat.name}={self[heartbeat]}: give less than {session.name} ({self[session]})"
                )
        for option, least, most in share.SHARE_BOUNDS:
            if option.name in self._overrides and self.bounded(option) != self[option]:
                raise ConfigError(
                    f"{option.name}={self[option]}: give a number from {self._broker[least]} "
                    f"({least.name}) to {self._broker[most]} ({most.name})"
                )

    def bounded(self, option: Option[int]) -> int:
        """Value of an option of share groups, limited to the broker's bounds, which may have changed after the value
        was set.
        """
        value = self[option]
        if option.name in self._overrides:
            for bounded, least, most in share.SHARE_BOUNDS:
                if bounded is option:
                    value = min(max(value, self._broker[least]), self._broker[most])
        return value


def _synonym(option: Option[T]) -> Option[T]:
    assert option.synonym is not None, f"{option.name} is a setting of brokers"
    return option.synonym


def broker_option(name: str) -> Option[Any]:
    """Return the broker option with this name, which may include the prefix of a listener. Raises ConfigError with a
    hint for an unknown name.
    """
    if name.startswith(PREFIX):
        return _listener_option(name)
    for own in (TopicConfig, GroupConfig):
        option = own.options.get(name)
        if option is not None and name not in broker.BROKER_OPTIONS:
            default = (
                "" if option.synonym is None else f"; the broker's default for it is {option.synonym.name}"
            )
            raise ConfigError(f"{name} is a setting of {own.kind}s{default}")
    return find(broker.BROKER_OPTIONS, name, "broker")


def _listener_option(name: str) -> Option[Any]:
    listener, _, option_name = name.removeprefix(PREFIX).partition(".")
    option = find(broker.BROKER_OPTIONS, option_name, "broker")
    if not any(option in group.options for group in LISTENER_GROUPS):
        raise ConfigError(f"{option_name} cannot be set for the listener {listener}; set it for the broker")
    return replace(option, name=name)


def _dynamic_option(name: str) -> Option[Any]:
    option = broker_option(name)
    if not option.dynamic:
        raise ConfigError(f"{name} cannot be changed while the broker runs; set it and restart the broker")
    return option


def _check_broker(config: BrokerConfig) -> None:
    largest, request = config[_synonym(topic.MAX_MESSAGE_BYTES)], config[SOCKET_REQUEST_MAX_BYTES]
    if largest > request:
        raise ConfigError(
            f"message.max.bytes={largest}: a batch cannot be larger than a request; "
            f"give at most socket.request.max.bytes ({request})"
        )
    least, most = topic.MIN_COMPACTION_LAG_MS, topic.MAX_COMPACTION_LAG_MS
    _check_compaction_lag(config[_synonym(least)], config[_synonym(most)], "log.cleaner.")


def _check_compaction_lag(least_ms: int, most_ms: int, prefix: str) -> None:
    if least_ms > most_ms:
        raise ConfigError(
            f"{prefix}min.compaction.lag.ms={least_ms}: "
            f"give at most {prefix}max.compaction.lag.ms ({most_ms})"
        )
