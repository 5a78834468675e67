"""The console's JavaScript modules without a browser, where Node.js is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import penstock.gateway.console

FILES = Path(penstock.gateway.console.__file__).parent / "static"
TESTS = Path(__file__).with_name("modules.test.mjs")


@pytest.mark.usefixtures("starts_processes")
def test_modules_pass_their_tests() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed")
    done = subprocess.run(
        [node, "--test", str(TESTS)],
        env={**os.environ, "CONSOLE_FILES": FILES.as_uri()},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
