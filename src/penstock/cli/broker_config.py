"""Settings of a broker or gateway from the settings file, the environment and the command line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from penstock.cli.failures import ExitCode, Failure
from penstock.cli.secrets import check_not_shown, resolve
from penstock.config.loading import Loaded, load_broker_config, parse_assignments


def load_config(
    file: str | None, assignments: Iterable[str], options: Mapping[str, str | None] | None = None
) -> Loaded:
    """Load the settings. `assignments` are NAME=VALUE texts, `options` are the values of command-line options for
    single settings.
    """
    given = {setting: value for setting, value in (options or {}).items() if value is not None}
    assigned = parse_assignments(assignments)
    check_not_shown(assigned)
    return load_broker_config(
        file=None if file is None else (file, _read(file)),
        environment=os.environ,
        command_line=assigned | given,
        resolve=lambda name, text: resolve(name, text, os.environ),
    )


def _read(file: str) -> str:
    try:
        return Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the file is not UTF-8 text"
        raise Failure(
            f"cannot read {file}: {reason}", "Name a settings file with --config FILE.", code=ExitCode.USAGE
        ) from None
