"""`penstock gateway` in the tree of commands, for the list that `penstock --help` shows.

The command itself does not come this way: `main` calls `gateway.gateway`, which reads its options as a broker does.
"""

from __future__ import annotations

import typer


def register(root: typer.Typer) -> None:
    root.command(add_help_option=False)(gateway)


def gateway() -> None:
    """Serve HTTP in front of a cluster."""
