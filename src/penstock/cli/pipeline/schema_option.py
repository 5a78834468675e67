"""Parsing of value schemas and topic patterns on the command line."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.cli.failures import ExitCode, Failure
from penstock.declared.problems import SchemaProblem
from penstock.declared.value_schema import ValueSchema, parse_schema

_NAMES = re.compile(r"[A-Za-z0-9._,\s-]+")


def read_schema(text: str) -> ValueSchema:
    """Parse columns such as `id bigint, total double`, or read the schema file with this name."""
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
    """Return the options of the source for topic names. A text with characters that topic names cannot have is a
    regular expression.
    """
    return {"subscribe": topics} if _NAMES.fullmatch(topics) else {"subscribePattern": topics}
