"""Pure and compiled builds: which one runs, and the refusal of a compiled build that differs from its sources."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Set
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

import penstock
from penstock.build import ALWAYS_COMPILED, StaleBuild, check_sources, current_build, write_record
from support.compiled_build import is_compiled, is_refused_double

ROOT = Path(__file__).resolve().parents[1]


def compiled_modules() -> list[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["penstock"]["compile"]
    return [f"penstock.{module}" for group in settings["groups"].values() for module in group]


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    directory = tmp_path / "src" / "penstock"
    (directory / "wire").mkdir(parents=True)
    (directory / "wire" / "framing.py").write_text("LIMIT = 1\n")
    return directory


@pytest.fixture
def record(tmp_path: Path, sources: Path) -> str:
    """The record of a compiled build of these sources."""
    package = tmp_path / "compiled" / "penstock"
    package.mkdir(parents=True)
    write_record(str(package), str(sources))
    return str(package / "sources.json")


def test_compiled_build_of_unchanged_sources_is_used(record: str) -> None:
    check_sources(record)


def test_package_without_a_record_is_used(tmp_path: Path) -> None:
    check_sources(str(tmp_path / "sources.json"))


def test_changed_source_is_refused(sources: Path, record: str) -> None:
    (sources / "wire" / "framing.py").write_text("LIMIT = 2\n")
    with pytest.raises(StaleBuild, match="run `make compile`"):
        check_sources(record)


def test_added_and_removed_sources_are_refused(sources: Path, record: str) -> None:
    added = sources / "wire" / "added.py"
    added.write_text("")
    with pytest.raises(StaleBuild):
        check_sources(record)
    added.unlink()
    check_sources(record)
    (sources / "wire" / "framing.py").unlink()
    with pytest.raises(StaleBuild):
        check_sources(record)


@pytest.mark.usefixtures("starts_processes")
def test_process_does_not_start_from_a_stale_build(tmp_path: Path) -> None:
    package = tmp_path / "penstock"
    package.mkdir()
    for name in ("__init__.py", "build.py"):
        (package / name).write_bytes((Path(penstock.__file__).parent / name).read_bytes())
    sources = tmp_path / "sources"
    sources.mkdir()
    write_record(str(package), str(sources))
    (sources / "new.py").write_text("")
    run = subprocess.run(
        [sys.executable, "-c", "import penstock"], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode != 0
    assert "differs from its sources" in run.stderr


def test_listed_modules_exist_and_are_compiled_together() -> None:
    modules = compiled_modules()
    assert ALWAYS_COMPILED in modules
    assert len(modules) == len(set(modules))
    for module in modules:
        spec = find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        assert spec.origin.endswith(tuple(EXTENSION_SUFFIXES)) == (current_build() == "compiled")


@pytest.mark.slow
def test_pure_classes_do_not_inherit_from_compiled_ones() -> None:
    """An instance of such a class cannot be created on the compiled build."""
    modules = set(compiled_modules())
    found = [
        f"{path.relative_to(ROOT)}: {definition.name} inherits from {base}"
        for directory in ("src", "simulation", "tests", "bench")
        for path in sorted((ROOT / directory).rglob("*.py"))
        if ".".join(path.relative_to(ROOT / directory).with_suffix("").parts) not in modules
        for definition, base in bases_imported_from(path, modules)
    ]
    assert found == []


@pytest.mark.parametrize("module", compiled_modules())
def test_compiled_coroutines_do_not_wait_in_except_blocks(module: str) -> None:
    """mypyc loses the exception when such a coroutine is closed, and the process dies."""
    path = ROOT / "src" / f"{module.replace('.', '/')}.py"
    found = [
        waiting.lineno
        for handler in ast.walk(ast.parse(path.read_text()))
        if isinstance(handler, ast.ExceptHandler)
        for waiting in ast.walk(handler)
        if isinstance(waiting, ast.Await | ast.AsyncFor | ast.AsyncWith)
    ]
    assert found == [], f"{path.name} waits in an except block: wait after the block instead"


def bases_imported_from(path: Path, modules: Set[str]) -> Iterator[tuple[ast.ClassDef, str]]:
    """Classes of a file with a base that the file imports from one of these modules, except protocols."""
    text = path.read_text()
    if not any(f"from {module} import" in text for module in modules):
        return
    tree = ast.parse(text)
    origins = {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in modules
        for alias in node.names
    }
    for definition in ast.walk(tree):
        if isinstance(definition, ast.ClassDef):
            for base in definition.bases:
                name = ast.unparse(base).partition("[")[0]
                if name in origins and not is_protocol(str(origins[name]), name):
                    yield definition, name


def is_protocol(module: str, name: str) -> bool:
    return bool(getattr(getattr(import_module(module), name), "_is_protocol", False))


def test_patched_code_counts_as_compiled_by_its_module() -> None:
    compiled, pure = ModuleType("penstock.compiled"), ModuleType("penstock.pure")
    compiled.__file__, pure.__file__ = "/compiled.cpython-311-x86_64-linux-gnu.so", "/pure.py"
    assert is_compiled(compiled)
    assert not is_compiled(pure)
    framing = import_module(ALWAYS_COMPILED)
    assert is_compiled(framing) == is_compiled(framing.FrameReader) == (current_build() == "compiled")
    assert not is_compiled(pytest)


def test_only_doubles_of_tests_count_as_refused() -> None:
    def refusal(name: str) -> TypeError:
        return TypeError(f"penstock.state_log.appender.Appender object expected; got {name}")

    assert is_refused_double(refusal(f"{__name__}.FakeLog"))
    caused = RuntimeError("a task failed")
    caused.__cause__ = refusal(f"{__name__}.FakeLog")
    assert is_refused_double(caused)
    assert not is_refused_double(refusal("penstock.replication.replica.Replica"))
    assert not is_refused_double(refusal("None"))
    assert not is_refused_double(TypeError("int object expected; got str"))
    assert not is_refused_double(None)
