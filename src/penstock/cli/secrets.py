"""Secrets in settings: `${file:PATH}` and `${env:NAME}` in a value are replaced by the content of the file or
variable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.config import Option
from penstock.config.settings import broker_option
from penstock.errors import ConfigError
from penstock.security.tls_context import check_private

_REFERENCE = re.compile(r"\$\{(file|env):([^}]*)\}")


def resolve(name: str, text: str, environment: Mapping[str, str]) -> str:
    """Replace the references in the value of a setting. Raises ConfigError, whose text never contains a secret."""

    def replace(reference: re.Match[str]) -> str:
        kind, what = reference.groups()
        if kind == "env":
            if what not in environment:
                raise ConfigError(f"{name}: the environment variable {what} is not set")
            return environment[what]
        return _read(name, what)

    return _REFERENCE.sub(replace, text)


def check_not_shown(values: Mapping[str, str]) -> None:
    """Raise ConfigError for a secret on the command line, which other users of the machine can read."""
    for name, text in values.items():
        option = _option(name)
        if option is not None and option.sensitive and text and not _REFERENCE.fullmatch(text):
            raise ConfigError(
                f"{name}: other users can see the command line; give {name}=${{file:PATH}}, or set it in the file "
                "of --config"
            )


def _read(name: str, path: str) -> str:
    option = _option(name)
    if option is not None and option.sensitive:
        try:
            check_private(path)
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None
    try:
        with open(path) as file:
            return file.read().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{name}: cannot read {path}: {reason}") from None


def _option(name: str) -> Option[object] | None:
    try:
        return broker_option(name)
    except ConfigError:
        return None
