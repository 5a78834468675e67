"""`penstock cluster`: run a cluster on this machine; inspect, extend and repair any cluster."""

from __future__ import annotations

from importlib import import_module

import typer

MODULES = ("local_commands", "status", "reassignment_commands", "adopt")
"""Modules with commands, in the order of `penstock cluster --help`."""


def register(root: typer.Typer) -> None:
    app = typer.Typer(
        help="Run a cluster on this machine; inspect, extend and repair any cluster.", no_args_is_help=True
    )
    for name in MODULES:
        import_module(f"{__name__}.{name}").register(app)
    root.add_typer(app, name="cluster")
