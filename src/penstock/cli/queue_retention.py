"""Options `--retain` and `--max-length` of `penstock queue`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.failures import ExitCode, Failure
from penstock.config import MaxLengthPolicy
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
        "--max-length",
        min=0,
        help="Maximum number of unsettled messages; 0: no limit. See --max-length-policy.",
    ),
]
MaxLengthPolicyOption = Annotated[
    MaxLengthPolicy | None,
    typer.Option(
        "--max-length-policy",
        help="Beyond --max-length, refuse new messages, or send the oldest ones to the dead letters.",
    ),
]


def length_settings(max_length: int | None, policy: MaxLengthPolicy | None) -> dict[str, str]:
    """Return the settings of --max-length and --max-length-policy; empty if neither is given."""
    found = {} if max_length is None else {"max_length": str(max_length)}
    return found if policy is None else {**found, "max_length_policy": policy.value}


def retain_value(retain: str | None) -> str:
    """Return the value of --retain; empty if it is not given."""
    try:
        retain_configs(retain or "")
    except ValueError as error:
        raise Failure(
            f"--retain: {error}", "Give acknowledged, or a time such as 2w.", code=ExitCode.USAGE
        ) from None
    return retain or ""
