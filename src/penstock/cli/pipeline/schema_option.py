"""Schemas of values and patterns of topics on the command line."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.cli.failures import ExitCode, Failure
from penstock.declared.problems import SchemaProblem
from penstock.declared.value_schema import ValueSchema, parse_schema

_NAMES = re.compile(r"[A-Za-z0-9._,\s-]+")


def read_schema(text: str) -> ValueSchema:
    """Parse columns such as `id bigint, total double`, or the file of that name."""
    path = Path(text)
    try:
        content = path.read_text() if path.suffix and path.is_file() else text
        return parse_schema(content)
    except (SchemaProblem, OSError, UnicodeDecodeError) as error:
        raise Failure(
            f"--schema: {error}",
            "Write columns such as 'id bigint, total double', or name a file with a JSON Schema or an Avro schema.",
            code=ExitCode.USAGE,
        ) from None


def subscription_of(topics: str) -> dict[str, str]:
    """Options of the source for names, or for a regular expression: a text with other characters than names have."""
    return {"subscribe": topics} if _NAMES.fullmatch(topics) else {"subscribePattern": topics}
