"""Entry of `penstock gateway` in the command list of `penstock --help`.

`main` runs the command by calling `gateway.gateway`, which does not load typer.
"""

from __future__ import annotations

import typer


def register(root: typer.Typer) -> None:
    root.command(add_help_option=False)(gateway)


def gateway() -> None:
    """Serve HTTP in front of a cluster."""
