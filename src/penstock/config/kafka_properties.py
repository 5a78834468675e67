"""Translation of Kafka's `server.properties` to the options of this broker.

Kafka's other names for the same option (`broker.id`, `log.dirs`, `listeners`, `log.retention.hours`) are translated.
Options for Kafka's threads, socket buffers and KRaft quorum are accepted and ignored, so that a file can be used
unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.config.address import parse_address
from penstock.errors import ConfigError

WILDCARD = "0.0.0.0"
_RENAMED = {
    "broker.id": "node.id",
    "log.dirs": "log.dir",
    # In Kafka, a listener without an explicit name has the name of its protocol.
    "security.inter.broker.protocol": "inter.broker.listener.name",
}
_DURATIONS = {
    "log.retention.ms": (("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
    "log.roll.ms": (("log.roll.hours", 3_600_000),),
}
"""Kafka's names for the same option in coarser units, in order of precedence, each with its unit in milliseconds."""
_THREADS = "the broker has one event loop and small pools of its own"
_BUFFERS = "the operating system sizes socket buffers"
_KRAFT = "metadata is kept in ZooKeeper, or in the data directory of a single broker"
_IGNORED = {
    "num.network.threads": _THREADS,
    "num.io.threads": _THREADS,
    "num.replica.fetchers": _THREADS,
    "num.recovery.threads.per.data.dir": _THREADS,
    "num.replica.alter.log.dirs.threads": _THREADS,
    "background.threads": _THREADS,
    "log.cleaner.threads": _THREADS,
    "remote.log.manager.thread.pool.size": _THREADS,
    "socket.send.buffer.bytes": _BUFFERS,
    "socket.receive.buffer.bytes": _BUFFERS,
    "replica.socket.receive.buffer.bytes": _BUFFERS,
    "process.roles": _KRAFT,
    "controller.listener.names": _KRAFT,
    "controller.quorum.voters": _KRAFT,
    "controller.quorum.bootstrap.servers": _KRAFT,
    "metadata.log.dir": _KRAFT,
}
"""Options that are accepted and ignored, with the reason."""


def ignored(values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the given options that are ignored, with the reason."""
    return ((name, _IGNORED[name]) for name in values if name in _IGNORED)


def translated(values: Mapping[str, str], problems: list[ConfigError]) -> dict[str, str]:
    """Return the options under our names, without those that are ignored. Errors of options that cannot be translated
    are added to `problems`.
    """
    found = {name: text for name, text in values.items() if name not in _IGNORED}
    controllers = {each.strip() for each in values.get("controller.listener.names", "").split(",")}
    for name in ("listeners", "advertised.listeners"):
        if name in found:
            found[name] = _without(found[name], controllers)
    if "listener.security.protocol.map" in found:
        found["listener.security.protocol.map"] = _without(
            found["listener.security.protocol.map"], controllers, ":"
        )
    for kafka_name, name in _RENAMED.items():
        if kafka_name in found:
            found.setdefault(name, found[kafka_name])
            del found[kafka_name]
    if "," in found.get("log.dir", ""):
        problems.append(ConfigError("log.dirs: a broker has one data directory; give one path"))
        del found["log.dir"]
    for name, coarser in _DURATIONS.items():
        _take_duration(found, name, coarser, problems)
    _take_short_form(found)
    return found


def _take_duration(
    found: dict[str, str], name: str, coarser: tuple[tuple[str, int], ...], problems: list[ConfigError]
) -> None:
    """Replace options in coarser units by the option `name`. If several units are given, the finest one takes
    precedence, as in Kafka. -1 means no limit in every unit.
    """
    for kafka_name, unit_ms in coarser:
        text = found.pop(kafka_name, None)
        if text is None:
            continue
        try:
            count = int(text)
        except ValueError:
            problems.append(ConfigError(f"{kafka_name}={text!r}: give a whole number"))
            continue
        found.setdefault(name, str(count * unit_ms if count >= 0 else -1))


def _without(listeners: str, controllers: set[str], separator: str = "://") -> str:
    """Return the listeners without those of a KRaft controller."""
    entries = (entry.strip() for entry in listeners.split(","))
    return ",".join(entry for entry in entries if entry.partition(separator)[0] not in controllers)


def _take_short_form(found: dict[str, str]) -> None:
    """Translate a single PLAINTEXT listener to `host` and `port`, which then also apply to HTTP and can be overridden
    by `--host` and `--port`. Other listeners are kept.
    """
    name, separator, place = found.get("listeners", "").rpartition("://")
    if not place or "," in place + name or (separator and name.upper() != "PLAINTEXT"):
        return
    try:
        address = parse_address(f"{WILDCARD}{place}" if place.startswith(":") else place)
    except ValueError:
        return  # validation of the option reports the error
    del found["listeners"]
    found.setdefault("host", address.host)
    found.setdefault("port", str(address.port))
