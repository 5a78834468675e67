"""Settings of running brokers, of one (`--broker N`) or of all (`--all`): read and changed over the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from penstock.cli.cluster_client import ClusterClient, alter_configs, check_answer
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.output import print_json, print_table
from penstock.config import Address, Source
from penstock.config.resources import ConfigOperation, ConfigResourceType

DESCRIBE_CLUSTER, DESCRIBE_CONFIGS = 60, 32
SET_ON_ALL_BROKERS = 3
_SOURCES = {
    Source.DYNAMIC_BROKER_CONFIG: "set on this broker",
    SET_ON_ALL_BROKERS: "set on all brokers",
    Source.STATIC_BROKER_CONFIG: "given at start",
    Source.DEFAULT_CONFIG: "default",
}
HIDDEN = "(hidden)"
ALL_BROKERS = ""
"""The resource name of the settings that hold for every broker."""


def target(broker: int | None, all_brokers: bool) -> str:
    """The resource that the options name: a broker's id, or all brokers."""
    if (broker is not None) == all_brokers:
        raise Failure("name one broker with --broker N, or all with --all", code=ExitCode.USAGE)
    return ALL_BROKERS if broker is None else str(broker)


def show_running(bootstrap: str, resource: str, *, json: bool) -> None:
    """Print the settings in force at a running broker, or those set for all at run time."""
    entries = asyncio.run(_describe(bootstrap, resource))
    rows = {
        entry.name: (
            HIDDEN if entry.is_sensitive else entry.value or "",
            _SOURCES.get(entry.config_source, "unknown"),
        )
        for entry in sorted(entries, key=lambda entry: str(entry.name))
    }
    if json:
        print_json({name: {"value": value, "from": source} for name, (value, source) in rows.items()})
    elif rows:
        print_table(["setting", "value", "from"], [(name, *row) for name, row in rows.items()])
    else:
        print("no settings are set for all brokers")


def change(bootstrap: str, resource: str, values: Mapping[str, str | None], *, json: bool) -> None:
    """Set settings at run time, or return those with None to what the broker was started with."""
    asyncio.run(_alter(bootstrap, resource, values))
    if json:
        print_json({"broker": resource or "all", "changed": sorted(values)})
    else:
        verb = "unset" if None in values.values() else "set"
        where = f"broker {resource}" if resource else "all brokers"
        print(f"{verb} {', '.join(sorted(values))} on {where}")


async def _describe(bootstrap: str, resource: str) -> list[Any]:
    named = {
        "resource_type": ConfigResourceType.BROKER,
        "resource_name": resource,
        "configuration_keys": None,
    }
    fields = {"resources": [named], "include_synonyms": False, "include_documentation": False}
    async with ClusterClient(bootstrap) as client:
        if resource:
            # A broker knows the settings that it was started with, and no other broker does.
            address = await _address(client, int(resource))
            response = await client.ask_at(address, DESCRIBE_CONFIGS, 4, fields)
        else:
            response = await client.ask(DESCRIBE_CONFIGS, 4, fields)
    [result] = response.results
    check_answer(result, f"the settings of broker {resource}")
    return list(result.configs)


async def _address(client: ClusterClient, broker_id: int) -> Address:
    fields = {"include_cluster_authorized_operations": False, "endpoint_type": 1}
    response = await client.ask(DESCRIBE_CLUSTER, 1, fields)
    addresses = {broker.broker_id: Address(broker.host, broker.port) for broker in response.brokers}
    if broker_id not in addresses:
        known = ", ".join(str(number) for number in sorted(addresses))
        raise Failure(f"broker {broker_id} is not running", f"These are: {known}.")
    return addresses[broker_id]


async def _alter(bootstrap: str, resource: str, values: Mapping[str, str | None]) -> None:
    configs = [
        {
            "name": name,
            "config_operation": ConfigOperation.DELETE if value is None else ConfigOperation.SET,
            "value": value,
        }
        for name, value in values.items()
    ]
    async with ClusterClient(bootstrap) as client:
        await alter_configs(client, ConfigResourceType.BROKER, {resource: configs})
