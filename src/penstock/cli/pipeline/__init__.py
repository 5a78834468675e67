"""`penstock pipeline`: archive, replay, compact, stats, query. Each command is in its own module."""

from __future__ import annotations

from importlib import import_module

import typer

COMMANDS = ("archive", "replay", "compact", "stats", "query")


def register(root: typer.Typer) -> None:
    app = typer.Typer(
        help="Archive, replay, compact, measure and query topics with Spark, locally or on a Spark cluster.",
        no_args_is_help=True,
    )
    for name in COMMANDS:
        import_module(f"{__name__}.{name}").register(app)
    root.add_typer(app, name="pipeline")
