"""Writing and size rules that a program can check (see CONTRIBUTING.md, "Writing").

`tests/tidy_exceptions.txt` lists the files that break a rule, with the number of places. The numbers may only fall: a
file with more places fails, and so does one with fewer, until `python tests/test_tidy.py --update` lowers the number.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest
from kio.schema.index import api_key_map

ROOT = Path(__file__).resolve().parents[1]
EXCEPTIONS = ROOT / "tests" / "tidy_exceptions.txt"
CHECKED = ("src", "simulation", "tests", "bench")
MOST_LINES_OF_A_FILE = 400
MOST_LINES_OF_A_FUNCTION = 40
MOST_CHARACTERS_OF_A_TEST_NAME = 80

OPENING = re.compile(
    r"(Of|As|By|So long|Those|Who|Whoever|What|Which|Whether of|It|They|To|In the|Where|While|After so|Such|None of"
    r"|That)\b"
)
"""Words that start neither a noun phrase nor an imperative."""
RIDDLE = re.compile(
    r"\b(whoever|who (waits|asks|comes|has|is)|no more|so many|is told|goes on|nobody|somebody|everybody)\b"
)
"""Phrases in place of a noun: a client, a broker, a number."""
UNKNOWN_REFERENCE = re.compile(r"\bDESIGN\.md\b|\bSPEC\.md\b|\b[Ii]ssue \d+\b")
"""References to documents that the repository does not contain."""
KEY_HOMES = (
    "src/penstock/internal_client/",
    "src/penstock/server/",
    "src/penstock/wire/",
    "tests/",
    "bench/",
)
"""Directories where an API key may be written as a number."""
API_KEYS = {re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper(): key for key, name in api_key_map.items()}


@dataclass(frozen=True)
class Module:
    path: str
    """Relative to the root of the repository."""
    text: str
    tree: ast.Module

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    @property
    def docstrings(self) -> Iterator[tuple[int, str]]:
        """Docstrings of modules, classes, functions and attributes, with their lines."""
        for node in self.nodes:
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                yield node.lineno, node.value.value.strip()


Rule = Callable[[Module], Iterator[str]]


def opening(module: Module) -> Iterator[str]:
    """A docstring starts with a noun phrase or an imperative verb."""
    for line, text in module.docstrings:
        if OPENING.match(text):
            yield f"{line}: {_first_line(text)}"


def riddle(module: Module) -> Iterator[str]:
    """A sentence names its subject."""
    for line, text in module.docstrings:
        if RIDDLE.search(_first_line(text)):
            yield f"{line}: {_first_line(text)}"


def reference(module: Module) -> Iterator[str]:
    """Prose refers to nothing that the repository does not contain."""
    for line, text in enumerate(module.text.splitlines(), 1):
        if UNKNOWN_REFERENCE.search(text) and not text.startswith("UNKNOWN_REFERENCE"):
            yield f"{line}: {_first_line(text.strip())}"


def api_key(module: Module) -> Iterator[str]:
    """API keys are declared in the internal client and in the handlers."""
    if module.path.startswith(KEY_HOMES):
        return
    for node in module.nodes:
        if isinstance(node, ast.Assign):
            for name, value in _assigned(node):
                if API_KEYS.get(name.strip("_").removesuffix("_KEY")) == value:
                    yield f"{node.lineno}: {name} = {value}"


def file_size(module: Module) -> Iterator[str]:
    lines = module.text.count("\n")
    if lines > MOST_LINES_OF_A_FILE:
        yield f"1: {lines} lines, at most {MOST_LINES_OF_A_FILE}"


def function_size(module: Module) -> Iterator[str]:
    for function in module.functions:
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > MOST_LINES_OF_A_FUNCTION and not _has_inner_functions(function):
            yield f"{function.lineno}: {function.name} has {lines} lines, at most {MOST_LINES_OF_A_FUNCTION}"


def test_name(module: Module) -> Iterator[str]:
    """A test is named by a behaviour, in a line that a report shows whole."""
    for function in module.functions:
        if function.name.startswith("test_") and len(function.name) > MOST_CHARACTERS_OF_A_TEST_NAME:
            yield f"{function.lineno}: {function.name} has {len(function.name)} characters"


test_name.__test__ = False  # type: ignore[attr-defined]
RULES: tuple[Rule, ...] = (opening, riddle, reference, api_key, file_size, function_size, test_name)


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:100]


def _assigned(node: ast.Assign) -> Iterator[tuple[str, int]]:
    for target in node.targets:
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        for name, value in zip(names, values, strict=False):
            if (
                isinstance(name, ast.Name)
                and isinstance(value, ast.Constant)
                and isinstance(value.value, int)
            ):
                yield name.id, value.value


def _has_inner_functions(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is a test whose scenario is an inner function; the inner one is measured."""
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in function.body)


def modules() -> Iterator[Module]:
    for directory in CHECKED:
        for path in sorted((ROOT / directory).rglob("*.py")):
            text = path.read_text()
            yield Module(path.relative_to(ROOT).as_posix(), text, ast.parse(text))


@cache
def violations() -> dict[tuple[str, str], list[str]]:
    """Places that break a rule, by rule and path."""
    found: dict[tuple[str, str], list[str]] = {}
    for module in modules():
        for rule in RULES:
            if places := [f"{module.path}:{place}" for place in rule(module)]:
                found[rule.__name__, module.path] = places
    return found


def exceptions() -> Counter[tuple[str, str]]:
    rows = (line.split() for line in EXCEPTIONS.read_text().splitlines() if line and not line.startswith("#"))
    return Counter({(rule, path): int(count) for rule, path, count in rows})


def update() -> None:
    """Lower the numbers of the exceptions to what there is. Numbers that would rise stay."""
    known, found = exceptions(), violations()
    header = [line for line in EXCEPTIONS.read_text().splitlines() if line.startswith("#")]
    counts = {key: min(known[key], len(found.get(key, ()))) for key in sorted(known)}
    rows = [f"{rule} {path} {count}" for (rule, path), count in counts.items() if count]
    EXCEPTIONS.write_text("\n".join([*header, *rows]) + "\n")


@pytest.mark.parametrize("rule", [rule.__name__ for rule in RULES])
def test_rule_holds_except_in_the_listed_files(rule: str) -> None:
    found = {path: places for (name, path), places in violations().items() if name == rule}
    listed = {path: count for (name, path), count in exceptions().items() if name == rule}
    new = [place for path, places in found.items() if len(places) > listed.get(path, 0) for place in places]
    assert not new, f"rule {rule} is broken in more places than listed:\n" + "\n".join(new)
    fewer = [path for path, count in listed.items() if len(found.get(path, ())) < count]
    assert not fewer, f"lower the numbers with `python tests/test_tidy.py --update`: {fewer}"


if __name__ == "__main__":
    if sys.argv[1:] != ["--update"]:
        sys.exit("usage: python tests/test_tidy.py --update")
    update()
