"""Options `--retain` and `--max-length` of `penstock queue`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.failures import ExitCode, Failure
from penstock.internal_client.queue_retention import retain_configs

RetainOption = Annotated[
    str | None,
    typer.Option(
        "--retain",
        metavar="acknowledged|TIME",
        help="Keep messages until all queues and groups have settled them, or for a time: 2w.",
    ),
]

MaxLengthOption = Annotated[
    int | None,
    typer.Option(
        "--max-length", min=0, help="Refuse messages beyond this number of unsettled ones; 0: no limit."
    ),
]


def length_settings(max_length: int | None) -> dict[str, str]:
    """The setting of --max-length; empty without one."""
    return {} if max_length is None else {"max_length": str(max_length)}


def retain_value(retain: str | None) -> str:
    """The value of --retain; empty without one."""
    try:
        retain_configs(retain or "")
    except ValueError as error:
        raise Failure(
            f"--retain: {error}", "Give acknowledged, or a time such as 2w.", code=ExitCode.USAGE
        ) from None
    return retain or ""
