from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from penstock.cli.progress import reading_progress


@pytest.fixture
def content() -> bytes:
    return b"".join(b"line %d\n" % number for number in range(50_000))


def test_a_bar_on_a_terminal_changes_nothing_that_is_read(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    file = tmp_path / "file"
    file.write_bytes(content)
    with reading_progress([file]) as progress, file.open("rb") as stream:
        lines = list(progress.watch(stream))
    assert b"".join(lines) == content
    assert "/s" in capsys.readouterr().err


def test_no_progress_bar_without_a_terminal(content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.BytesIO(content)
    with reading_progress([]) as progress:
        assert progress.watch(stream) is stream
        progress.advance(5)
    assert capsys.readouterr().err == ""
