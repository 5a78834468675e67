"""Extension modules of the package; everything else is declared in pyproject.toml.

PENSTOCK_COMPILE=1 compiles the modules listed in `[tool.penstock.compile]` with mypyc. Without it no module
needs a compiler: the extensions that read records are optional, and Python reads where they are missing.
"""

import os
import tomllib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HEADERS = ["src/penstock/records/walk.h", "src/penstock/records/json_path.h"]
READERS = [
    Extension(name, sources=[source], depends=HEADERS, optional=True)
    for name, source in (
        ("penstock.pipeline._decoder", "src/penstock/pipeline/_decoder.c"),
        ("penstock.records._walker", "src/penstock/records/_walker.c"),
        ("penstock.delay._marks", "src/penstock/delay/_marks.c"),
    )
]


class BuildExtensions(build_ext):
    """Build of the extensions, which removes those that an earlier build left and this one does not have."""

    def run(self) -> None:
        super().run()
        built = {Path(output) for output in self.get_outputs()}
        for left in set(Path(self.build_lib).rglob("*.so")) - built:
            left.unlink()


def compiled() -> list[Extension]:
    from mypyc.build import mypycify

    declared = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["penstock"]["compile"]["groups"]
    groups = [
        ([f"src/penstock/{module.replace('.', '/')}.py" for module in modules], f"penstock_{name}")
        for name, modules in declared.items()
    ]
    paths = [path for paths, _ in groups for path in paths]
    return mypycify(
        ["--cache-dir=build/mypyc/cache", *paths],
        separate=groups,
        target_dir="build/mypyc",
        opt_level="2",
        debug_level="0",
    )


setup(
    ext_modules=[*READERS, *(compiled() if os.environ.get("PENSTOCK_COMPILE") == "1" else [])],
    cmdclass={"build_ext": BuildExtensions},
)
