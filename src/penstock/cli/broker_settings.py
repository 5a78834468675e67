"""Settings of running brokers, read and changed over the wire: one broker (`--broker N`) or all (`--all`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.cli.admin_client import run_admin
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.output import print_json, print_table
from penstock.config import ConfigSource
from penstock.config.resources import ConfigResourceType
from penstock.internal_client.client import InternalClient
from penstock.internal_client.configs import ConfigEntry

SET_ON_ALL_BROKERS = 3
_SOURCES = {
    ConfigSource.DYNAMIC_BROKER_CONFIG: "set on this broker",
    SET_ON_ALL_BROKERS: "set on all brokers",
    ConfigSource.STATIC_BROKER_CONFIG: "given at start",
    ConfigSource.DEFAULT_CONFIG: "default",
}
HIDDEN = "(hidden)"
ALL_BROKERS = ""
"""Resource name for settings of all brokers."""


def target(broker: int | None, all_brokers: bool) -> str:
    """Return the config resource that the options select: a broker id, or all brokers."""
    if (broker is not None) == all_brokers:
        raise Failure(
            "no broker is named" if broker is None else f"--broker {broker} and --all exclude each other",
            "Give --broker N for one broker, or --all for all brokers.",
            code=ExitCode.USAGE,
        )
    return ALL_BROKERS if broker is None else str(broker)


def show_running(bootstrap: str, resource: str, *, json: bool) -> None:
    """Print the effective settings of a running broker, or the settings that were set at run time for all brokers."""
    entries = _describe(bootstrap, resource)
    rows = {
        entry.name: (
            HIDDEN if entry.is_sensitive else entry.value or "",
            _SOURCES.get(entry.source, "unknown"),
        )
        for entry in entries
    }
    if json:
        print_json({name: {"value": value, "from": source} for name, (value, source) in rows.items()})
    elif rows:
        print_table(["setting", "value", "from"], [(name, *row) for name, row in rows.items()])
    else:
        print("no settings are set for all brokers; `penstock config set NAME=VALUE --all` sets one")


def change(bootstrap: str, resource: str, values: Mapping[str, str | None], *, json: bool) -> None:
    """Change settings of running brokers. A value of None restores the value that the broker was started with."""
    _alter(bootstrap, resource, values)
    if json:
        print_json({"broker": resource or "all", "changed": sorted(values)})
    else:
        verb = "unset" if None in values.values() else "set"
        where = f"broker {resource}" if resource else "all brokers"
        print(f"{verb} {', '.join(sorted(values))} on {where}")


def _describe(bootstrap: str, resource: str) -> Sequence[ConfigEntry]:
    async def describe(client: InternalClient) -> Sequence[ConfigEntry]:
        if resource:
            known = await client.brokers.ids()
            if int(resource) not in known:
                raise Failure(
                    f"broker {resource} is not running", f"Running brokers: {', '.join(map(str, known))}."
                )
        return await client.configs.get(ConfigResourceType.BROKER, resource)

    return run_admin(bootstrap, describe, _subject(resource))


def _alter(bootstrap: str, resource: str, values: Mapping[str, str | None]) -> None:
    async def alter(client: InternalClient) -> None:
        await client.configs.alter(ConfigResourceType.BROKER, resource, values, may_repeat=True)

    run_admin(bootstrap, alter, _subject(resource))


def _subject(resource: str) -> str:
    return f"the settings of {f'broker {resource}' if resource else 'all brokers'}"
