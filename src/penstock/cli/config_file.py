"""Reader of the settings file that `--config` names."""

from __future__ import annotations

from pathlib import Path

from penstock.cli.failures import ExitCode, Failure


def read_config_file(name: str | None) -> tuple[str, str] | None:
    """Return the name and content of a settings file; None without a name."""
    if name is None:
        return None
    try:
        return name, Path(name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Failure(f"cannot read {name}: {reason}", code=ExitCode.USAGE) from None
