"""Generator of docs/configuration.md. `make format` runs it, and a test checks that the file is up to date."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.config.broker_options import BROKER_GROUPS
from penstock.config.group_options import GROUP_SETTINGS
from penstock.config.options import Option, OptionGroup
from penstock.config.topic_options import TOPICS
from penstock.config.types import LONG_MAX

HEADER = """\
# Configuration

This page is generated from the declarations in `src/penstock/config/`; `make format` rewrites it.

A broker takes its settings from four sources. Each one overrides those before it: the defaults below, a file
(`--config FILE`), the environment, and the command line (`--set name=value`, or options such as `--port`).
`penstock config show` prints the values in force and their sources.

- A file with the suffix `.toml` is TOML with names in quotes, `"log.retention.ms" = 86400000`. Any other file has
  lines such as `log.retention.ms=86400000`, and comments that start with `#`.
- An environment variable has the name in capitals after `PENSTOCK_`: `PENSTOCK_LOG_RETENTION_MS=86400000`.
- An unknown name or an invalid value stops the start with an error that names it.

Topics have settings of their own, which can be changed at any time with `penstock topic alter` or any Kafka
client. Settings marked *live* can be changed while the broker runs, with IncrementalAlterConfigs on the broker.
Names that end in `.ms` are times in milliseconds, names that end in `.bytes` are sizes in bytes.
"""

_UNITS_MS = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second"))
_UNITS_BYTES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def render() -> str:
    return HEADER + "".join(_render_group(group) for group in (*BROKER_GROUPS, TOPICS, GROUP_SETTINGS))


def _render_group(group: OptionGroup) -> str:
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
    """Readable value such as 14 days or 1 GiB, if the number is a whole multiple of a unit."""
    if option.name.endswith(".ms") and isinstance(option.default, int):
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
        return f" Default on the broker: `{option.synonym.name}`."
    return " *Live.*" if option.dynamic else ""


if __name__ == "__main__":
    print(render(), end="")
