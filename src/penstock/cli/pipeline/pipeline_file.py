"""File with declared pipelines: reads and checks it, and inserts the schema files. Problems are reported with line
numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.cli.failures import ExitCode, Failure
from penstock.declared.checking import check_document
from penstock.declared.problems import DefinitionProblem
from penstock.extras import how_to_install


def read_pipelines(path: Path) -> list[dict[str, Any]]:
    """Return the documents of the pipelines in a YAML file."""
    try:
        from penstock.cli.pipeline.yaml_document import read_yaml
    except ImportError:
        raise Failure(
            "YAML needs pyyaml, which is not installed", f"Install it: {how_to_install('pipeline')}"
        ) from None
    document = read_yaml(path)
    problems = [
        *document.problems,
        *_read_schemas(document.value, path.parent),
        *check_document(document.value),
    ]
    if problems:
        count = f"{len(problems)} problems" if len(problems) > 1 else "a problem"
        raise Failure(
            "\n".join([f"{path} has {count}; nothing was changed", *document.describe(problems)]),
            "Correct the lines, then run the command again; docs/pipeline.md describes the file.",
            code=ExitCode.USAGE,
        )
    pipelines: list[dict[str, Any]] = document.value["pipelines"]
    return pipelines


def _read_schemas(document: Any, directory: Path) -> list[DefinitionProblem]:
    """Replace `schema: {file: PATH}` by the content of the file. Paths are relative to the YAML file."""
    problems = []
    listed = document.get("pipelines") if isinstance(document, Mapping) else None
    for place, each in enumerate(listed if isinstance(listed, list) else ()):
        schema = each.get("schema") if isinstance(each, dict) else None
        if not isinstance(schema, Mapping) or "file" not in schema or set(schema) != {"file"}:
            continue
        pointer = f"/pipelines/{place}/schema/file"
        try:
            text = (directory / str(schema["file"])).read_text()
            each["schema"] = json.loads(text) if text.lstrip().startswith("{") else text.strip()
        except OSError as error:
            problems.append(DefinitionProblem(pointer, f"cannot read {schema['file']}: {error.strerror}"))
            del each["schema"]
        except ValueError as error:
            problems.append(DefinitionProblem(pointer, f"{schema['file']} is not JSON: {error}"))
            del each["schema"]
    return problems
