"""docs/configuration.md, written from the declarations; `make format` rewrites it, a test says it matches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.config.broker_options import BROKER_GROUPS
from penstock.config.group_options import GROUP_SETTINGS
from penstock.config.options import Group, Option
from penstock.config.topic_options import TOPICS
from penstock.config.types import LONG_MAX

HEADER = """\
# Configuration

This page is generated from the declarations in `src/penstock/config/`; `make format` rewrites it.

A broker takes its settings from four places, each over the one before: the defaults below, a file
(`--config FILE`), the environment, the command line (`--set name=value`, and `--port` and its like).
`penstock config show` prints what is in force and where it comes from.

- A file that ends in `.toml` is TOML with the names in quotes, `"log.retention.ms" = 86400000`; any other is
  lines of `log.retention.ms=86400000`, with `#` for comments.
- An environment variable is the name in capitals behind `PENSTOCK_`: `PENSTOCK_LOG_RETENTION_MS=86400000`.
- A name that does not exist, or a value that will not do, stops the start with a message that says so.

Topics are created with settings of their own, and these can be changed at any time with
`penstock topic alter` or any Kafka client. Settings marked *live* can be changed while the broker runs, by
IncrementalAlterConfigs on the broker. Times are in milliseconds and sizes in bytes where the name ends so.
"""

_UNITS_MS = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second"))
_UNITS_BYTES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def render() -> str:
    return HEADER + "".join(_render_group(group) for group in (*BROKER_GROUPS, TOPICS, GROUP_SETTINGS))


def _render_group(group: Group) -> str:
    return f"\n## {group.title}\n\n" + "\n".join(_table(group.options)) + "\n"


def _table(options: Iterable[Option[Any]]) -> Iterator[str]:
    yield "| name | default | values | meaning |"
    yield "|---|---|---|---|"
    for option in options:
        meaning = option.doc + _marks(option)
        yield f"| `{option.name}` | {_default(option)} | {option.type.expected} | {meaning} |"


def _default(option: Option[Any]) -> str:
    text = option.format(option.default)
    if not text:
        return "none"
    if option.default == LONG_MAX:
        return "no limit"
    readable = _readable(option)
    return f"`{text}`" + (f" ({readable})" if readable else "")


def _readable(option: Option[Any]) -> str:
    """14 days, 1 GiB: where the number is a whole multiple of a unit."""
    if option.name.endswith(".ms"):
        return _in_units(option.default, _UNITS_MS, plural="s")
    if option.name.endswith((".bytes", ".size")):
        return _in_units(option.default, _UNITS_BYTES, plural="")
    return ""


def _in_units(value: int, units: tuple[tuple[int, str], ...], plural: str) -> str:
    for size, unit in units:
        if value > 0 and value % size == 0:
            count = value // size
            return f"{count} {unit}" + (plural if count > 1 else "")
    return ""


def _marks(option: Option[Any]) -> str:
    if option.synonym is not None:
        return f" Broker's default: `{option.synonym.name}`."
    return " *Live.*" if option.dynamic else ""


if __name__ == "__main__":
    print(render(), end="")
