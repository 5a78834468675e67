"""`penstock config`: show and change the settings of running brokers; show those that a broker would be started
with.
"""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from penstock.cli.broker_config import load_config
from penstock.cli.options import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    ConfigOption,
    JsonOption,
    SetOption,
)
from penstock.cli.output import print_json, print_table
from penstock.config import BROKER_GROUPS, BROKER_OPTIONS, TOPICS, Option
from penstock.config.loading import Loaded, environment_variable, parse_assignments

HIDDEN = "(hidden)"

app = typer.Typer(help="Show and change settings.", no_args_is_help=True)
BrokerOption = Annotated[
    int | None, typer.Option("--broker", metavar="N", help="The id of a running broker.")
]
AllOption = Annotated[bool, typer.Option("--all", help="All running brokers.")]


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="config")


@app.callback()
def _group() -> None:
    """Show and change settings."""


@app.command()
def show(
    docs: Annotated[
        bool, typer.Option("--docs", help="Explain every setting of brokers and topics.")
    ] = False,
    broker: BrokerOption = None,
    all_brokers: AllOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    config: ConfigOption = None,
    settings: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Show the settings that `penstock broker` would use here, or those of a running broker.

    With --all: the settings that were set for all brokers at run time.
    """
    if docs:
        _show_docs(json)
        return
    if broker is not None or all_brokers:
        from penstock.cli.broker_settings import show_running, target

        show_running(bootstrap, target(broker, all_brokers), json=json)
        return
    loaded = load_config(config, settings or [])
    for name, reason in loaded.ignored.items():
        typer.echo(f"{name} has no effect: {reason}", err=True)
    if json:
        print_json({name: _entry(loaded, option) for name, option in BROKER_OPTIONS.items()})
    else:
        rows = [(name, *_entry(loaded, option).values()) for name, option in sorted(BROKER_OPTIONS.items())]
        print_table(["setting", "value", "from"], rows)


@app.command("set")
def set_settings(
    assignments: Annotated[
        list[str], typer.Argument(metavar="NAME=VALUE...", help="Settings and their new values.")
    ],
    broker: BrokerOption = None,
    all_brokers: AllOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Change settings of running brokers. The change is kept after restarts."""
    from penstock.cli.broker_settings import change, target

    change(bootstrap, target(broker, all_brokers), parse_assignments(assignments), json=json)


@app.command()
def unset(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of settings.")],
    broker: BrokerOption = None,
    all_brokers: AllOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Reset settings of running brokers to the values that the brokers were started with."""
    from penstock.cli.broker_settings import change, target

    change(bootstrap, target(broker, all_brokers), dict.fromkeys(names), json=json)


def _entry(loaded: Loaded, option: Option[Any]) -> dict[str, str]:
    value = HIDDEN if option.sensitive else option.format(loaded.config[option])
    return {"value": value, "from": loaded.places.get(option.name, "default")}


def _show_docs(json: bool) -> None:
    if json:
        print_json(
            [
                _documented(option, group.title)
                for group in (*BROKER_GROUPS, TOPICS)
                for option in group.options
            ]
        )
        return
    for group in (*BROKER_GROUPS, TOPICS):
        typer.secho(f"\n{group.title}", bold=not os.environ.get("NO_COLOR"))
        for option in group.options:
            default = option.format(option.default) or "none"
            typer.echo(f"\n  {option.name}  (default {default}; {option.type.expected})\n    {option.doc}")


def _documented(option: Option[Any], group: str) -> dict[str, object]:
    return {
        "name": option.name,
        "group": group,
        "default": option.format(option.default),
        "values": option.type.expected,
        "live": option.dynamic,
        "environment": environment_variable(option.name) if option.name in BROKER_OPTIONS else None,
        "doc": option.doc,
    }
