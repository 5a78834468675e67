from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli.main import run
from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import assign
from penstock.records.building import NewRecord, build_batch
from penstock.records.control import build_marker

FIRST_SEGMENT = "00000000000000000000.log"


def batch(base_offset: int, *values: bytes) -> bytes:
    content = build_batch([NewRecord(None, value, timestamp=1_700_000_000_000) for value in values])
    assign(memoryview(content), Offset(base_offset), LeaderEpoch(3))
    return bytes(content)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    partition = tmp_path / "logs" / "orders-0-AAAAAAAAAAAAAAAAAAAAAA"
    partition.mkdir(parents=True)
    (partition / FIRST_SEGMENT).write_bytes(batch(0, b"a", b"b") + batch(2, b"c"))
    return partition


def test_show_lists_the_batches_of_a_segment(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "show", str(directory / FIRST_SEGMENT), "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["position"], first["base_offset"], first["last_offset"], first["records"]) == (0, 0, 1, 2)
    assert (second["position"], second["base_offset"], second["leader_epoch"]) == (first["bytes"], 2, 3)


def test_show_tells_transactions_and_their_markers(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = build_batch(
        [NewRecord(None, b"a", 1_000)], producer_id=7, producer_epoch=1, base_sequence=4, transactional=True
    )
    marker = build_marker(7, 1, True, 0, 1_000)
    assign(memoryview(marker), Offset(1), LeaderEpoch(0))
    (directory / FIRST_SEGMENT).write_bytes(data + marker)
    assert run(["log", "show", str(directory / FIRST_SEGMENT)]) == 0
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("4 - 4 (transaction)")
    assert second.rstrip().endswith("marker")


def test_show_lists_the_segments_of_a_directory(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "show", str(directory.parent), "--json"]) == 0
    [segment] = json.loads(capsys.readouterr().out)
    assert (segment["batches"], segment["records"], segment["last_offset"]) == (2, 3, 2)


def test_show_stops_at_the_maximum_and_says_so(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "show", str(directory / FIRST_SEGMENT), "--max", "1"]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2
    assert "--max" in shown.err


def test_check_passes_a_good_log(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "check", str(directory)]) == 0
    assert str(directory / FIRST_SEGMENT) in capsys.readouterr().out


def test_check_finds_a_flipped_bit_and_ends_with_code_1(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segment = directory / FIRST_SEGMENT
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)
    assert run(["log", "check", str(directory)]) == 1
    shown = capsys.readouterr()
    assert f"{segment} at {len(batch(0, b'a', b'b'))}: the CRC of offset 2 does not match" in shown.out
    assert "error: 1 problem found" in shown.err


def test_check_finds_a_torn_end(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segment = directory / FIRST_SEGMENT
    segment.write_bytes(segment.read_bytes()[:-1])
    assert run(["log", "check", str(segment), "--json"]) == 1
    [report] = json.loads(capsys.readouterr().out)
    assert report["batches"] == 1
    assert len(report["problems"]) == 1


def test_reading_changes_nothing(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in directory.iterdir()}
    run(["log", "check", str(directory)])
    run(["log", "show", str(directory / FIRST_SEGMENT)])
    assert {path: path.read_bytes() for path in directory.iterdir()} == before


def test_path_without_segments_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "check", str(tmp_path)]) == 1
    assert f"no segment files (*.log) in {tmp_path}" in capsys.readouterr().err
    assert run(["log", "show", str(tmp_path / "nothing")]) == 2
    assert not (tmp_path / "nothing").exists()


def test_a_file_that_is_no_segment_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("hello")
    assert run(["log", "show", str(file)]) == 2
    assert "is not a segment file" in capsys.readouterr().err
