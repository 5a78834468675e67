"""YAML file with the line number of each value, so that problems are reported with lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from penstock.cli.failures import ExitCode, Failure
from penstock.declared.problems import DefinitionProblem, below

MAX_BYTES = 4 * 1024 * 1024
_MAX_DEPTH = 100


@dataclass(slots=True)
class YamlDocument:
    path: Path
    value: Any = None
    lines: dict[str, int] = field(default_factory=dict)
    """Line number of each value, by its JSON pointer."""
    problems: list[DefinitionProblem] = field(default_factory=list)
    """Problems of the YAML itself: duplicate names, and tags that do not stand for plain data."""

    def line_of(self, pointer: str) -> int:
        """Return the line of a value, or of the nearest enclosing value that exists."""
        while pointer not in self.lines and pointer:
            pointer = pointer.rpartition("/")[0]
        return self.lines.get(pointer, 1)

    def describe(self, problems: list[DefinitionProblem]) -> list[str]:
        """Return one line of text for each problem, in the order of the file."""
        by_line = sorted((self.line_of(each.pointer), each.text) for each in problems)
        return [f"{self.path}:{line}: {text}" for line, text in by_line]


def read_yaml(path: Path) -> YamlDocument:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}", "Name a YAML file with pipelines.") from None
    if len(content) > MAX_BYTES:
        raise Failure(f"{path} has more than {MAX_BYTES:,} bytes", "Split the file.", code=ExitCode.USAGE)
    try:
        node = yaml.compose(content, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise Failure(
            f"{path}:{line}: {error.problem or 'this is not YAML'}", _HINT, code=ExitCode.USAGE
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Failure(f"{path}: {str(error).splitlines()[0]}", _HINT, code=ExitCode.USAGE) from None
    found = YamlDocument(path)
    found.value = None if node is None else _Reader(found).value(node, "", 0)
    return found


_HINT = "The document must be valid YAML; docs/pipeline.md has an example."


class _Reader:
    def __init__(self, document: YamlDocument) -> None:
        self._document = document
        self._scalars = yaml.SafeLoader("")

    def value(self, node: yaml.Node, pointer: str, depth: int) -> Any:
        self._document.lines.setdefault(pointer, node.start_mark.line + 1)
        if depth > _MAX_DEPTH:
            self._add(pointer, f"values are nested more than {_MAX_DEPTH} deep")
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, pointer, depth)
        if isinstance(node, yaml.SequenceNode):
            return [
                self.value(each, below(pointer, place), depth + 1) for place, each in enumerate(node.value)
            ]
        return self._scalar(node, pointer)

    def _mapping(self, node: yaml.MappingNode, pointer: str, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, each in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._add(pointer, "a key of a mapping must be a string")
                continue
            where = below(pointer, key.value)
            self._document.lines[where] = key.start_mark.line + 1
            if key.value in found:
                self._add(where, f"the key {key.value!r} is given twice")
            found[key.value] = self.value(each, where, depth + 1)
        return found

    def _scalar(self, node: yaml.Node, pointer: str) -> Any:
        if node.tag == "tag:yaml.org,2002:timestamp":
            return node.value
        try:
            return self._scalars.construct_object(node)
        except (yaml.YAMLError, ValueError):
            self._add(
                pointer,
                f"{node.tag} {str(node.value)[:40]!r} cannot be used: give a string, number, list or mapping",
            )
            return None

    def _add(self, pointer: str, text: str) -> None:
        self._document.problems.append(DefinitionProblem(pointer, text))
