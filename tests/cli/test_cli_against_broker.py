"""CLI commands against a real broker, on each event loop."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import run
from support.broker_process import Address

Penstock = Callable[..., bytes]


@pytest.fixture
def penstock(
    broker: Address, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Penstock:
    """Run a command with piped input and return its output; an error fails the test."""
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker.bootstrap)

    def call(*arguments: str, piped: bytes = b"", code: int = 0) -> bytes:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped)))
        ended = run(arguments)
        shown = capfdbinary.readouterr()
        assert ended == code, shown.err.decode()
        return shown.out if code == 0 else shown.err

    return call


def test_a_topic_is_created_described_altered_and_deleted(penstock: Penstock, topic_name: str) -> None:
    created = json.loads(penstock("topic", "create", topic_name, "--partitions", "2", "--json"))
    assert created == {"topic": topic_name, "partitions": 2}
    penstock(
        "topic",
        "alter",
        topic_name,
        "--partitions",
        "3",
        "--set",
        "retention.ms=5",
        "--set",
        "segment.bytes=2048",
    )
    penstock("topic", "alter", topic_name, "--unset", "segment.bytes")
    described = json.loads(penstock("topic", "describe", topic_name, "--json"))
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2]
    assert described["settings"]["retention.ms"] == {"value": "5", "source": "dynamic topic"}
    assert described["settings"]["segment.bytes"]["source"] == "default"
    listed = {entry["topic"]: entry for entry in json.loads(penstock("topic", "list", "--json"))}
    assert listed[topic_name] == {"topic": topic_name, "partitions": 3, "offsets": 0}
    penstock("topic", "delete", topic_name)
    assert topic_name not in penstock("topic", "list").decode()


def test_topic_settings_may_be_given_as_in_kafkas_tools(penstock: Penstock, topic_name: str) -> None:
    penstock("topic", "create", topic_name, "--config", "cleanup.policy=compact", "--set", "segment.ms=60000")
    settings = json.loads(penstock("topic", "describe", topic_name, "--json"))["settings"]
    assert settings["cleanup.policy"]["value"] == "compact"
    assert settings["segment.ms"]["value"] == "60000"


def test_records_survive_the_way_through_json_and_back(penstock: Penstock, topic_name: str) -> None:
    penstock("topic", "create", topic_name)
    records: list[dict[str, Any]] = [
        {"key": "k", "value": "v", "headers": [{"name": "h", "value": "1"}, {"name": "h", "value": None}]},
        {"key": None, "value": {"base64": "AP8="}, "headers": []},
        {"key": {"base64": "/w=="}, "value": None, "headers": [], "timestamp": 1_700_000_000_123},
        {"key": "", "value": "", "headers": []},
    ]
    lines = "\n".join(json.dumps(record) for record in records).encode()
    penstock("produce", topic_name, "--format", "json", piped=lines)
    read = [json.loads(line) for line in penstock("consume", topic_name, "--json").splitlines()]
    assert [record["offset"] for record in read] == [0, 1, 2, 3]
    assert read[2]["timestamp"] == 1_700_000_000_123
    assert [{name: record[name] for name in ("key", "value", "headers")} for record in read] == [
        {name: record[name] for name in ("key", "value", "headers")} for record in records
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_back(penstock: Penstock, topic_name: str, codec: str) -> None:
    lines = b"".join(b"line %d of some text that repeats\n" % number for number in range(500))
    penstock("produce", topic_name, "--compression", codec, "--idempotent", piped=lines)
    assert penstock("consume", topic_name) == lines


def test_limit_of_the_topic_decides_about_a_large_message(
    penstock: Penstock, topic_name: str, tmp_path: Path
) -> None:
    penstock("topic", "create", topic_name, "--set", "max.message.bytes=3000000")
    large = tmp_path / "large"
    large.write_bytes(bytes(2_000_000))
    penstock("produce", topic_name, str(large), "--format", "file")
    large.write_bytes(bytes(4_000_000))
    assert run(["produce", topic_name, str(large), "--format", "file"]) == 1


def test_a_file_is_one_record_byte_for_byte(penstock: Penstock, topic_name: str, tmp_path: Path) -> None:
    file = tmp_path / "image.bin"
    file.write_bytes(bytes(range(256)) * 100)
    shown = penstock("produce", topic_name, str(file), "--format", "file", "--key", "image", "--json")
    assert json.loads(shown)["next_offsets"] == {"0": 1}
    assert penstock("consume", topic_name, "--format", "{key}:{value}") == b"image:" + file.read_bytes()


def test_reading_starts_at_the_given_position(penstock: Penstock, topic_name: str) -> None:
    lines = "".join(
        json.dumps({"value": str(number), "timestamp": 1_700_000_000_000 + number}) + "\n"
        for number in range(10)
    )
    penstock("produce", topic_name, "--format", "json", piped=lines.encode())
    assert penstock("consume", topic_name, "--from", "7") == b"7\n8\n9\n"
    assert penstock("consume", topic_name, "--from", "-2") == b"8\n9\n"
    assert penstock("consume", topic_name, "--from", "1700000000006", "--max", "2") == b"6\n7\n"
    assert penstock("consume", topic_name, "--from", "end") == b""
    assert penstock("consume", topic_name, "--from", "99") == b""


def test_a_partition_can_be_named(penstock: Penstock, topic_name: str) -> None:
    penstock("topic", "create", topic_name, "--partitions", "3")
    penstock("produce", topic_name, "--partition", "2", piped=b"x\ny\n")
    assert (
        penstock("consume", topic_name, "--partition", "2", "--format", "{partition}/{offset}\\n")
        == b"2/0\n2/1\n"
    )
    assert penstock("consume", topic_name, "--partition", "0", "--partition", "1") == b""
    assert b"has no partition 3" in penstock("consume", topic_name, "--partition", "3", code=1)


def test_truncation_goes_up_to_an_offset_or_a_time(penstock: Penstock, topic_name: str) -> None:
    lines = "".join(
        json.dumps({"value": str(n), "timestamp": 1_700_000_000_000 + n}) + "\n" for n in range(10)
    )
    penstock("produce", topic_name, "--format", "json", piped=lines.encode())
    shown = json.loads(penstock("topic", "truncate", topic_name, "--before-offset", "3", "--json"))
    assert shown == {"topic": topic_name, "start_offsets": {"0": 3}}
    assert penstock("consume", topic_name, "--max", "1") == b"3\n"
    penstock("topic", "truncate", topic_name, "--before-time", "1700000000008")
    assert penstock("consume", topic_name) == b"8\n9\n"
    penstock("topic", "truncate", topic_name, "--before-offset", "1000")
    assert penstock("consume", topic_name) == b""


def test_truncation_tells_how_many_pending_messages_it_removed(penstock: Penstock, topic_name: str) -> None:
    penstock("topic", "create", topic_name, "--set", "delivery.delay=true", "--partitions", "1")
    penstock("produce", topic_name, "--delay", "1h", piped=b"a\nb\nc\n")
    shown = json.loads(penstock("topic", "truncate", topic_name, "--before-offset", "2", "--json"))
    assert shown == {"topic": topic_name, "start_offsets": {"0": 2}, "removed_pending": 2}
    assert b"removed 1 pending message\n" in penstock("topic", "truncate", topic_name, "--before-offset", "3")


@pytest.mark.parametrize("options", [[], ["--group", "readers-of-expired"]])
def test_expired_records_are_not_printed(penstock: Penstock, topic_name: str, options: list[str]) -> None:
    over = json.dumps({"value": "over", "headers": {"penstock-ttl-ms": "0"}})
    lines = f'{over}\n{{"value": "1"}}\n{over}\n{{"value": "2"}}\n{over}\n'
    penstock("topic", "create", topic_name, "--partitions", "1")
    penstock("produce", topic_name, "--format", "json", piped=lines.encode())
    assert penstock("consume", topic_name, "--max", "1", *options) == b"1\n"
    rest = penstock("consume", topic_name, *options)
    assert rest == (b"2\n" if options else b"1\n2\n")


def test_follow_prints_new_records(penstock: Penstock, broker: Address, topic_name: str) -> None:
    penstock("topic", "create", topic_name)
    command = [sys.executable, "-m", "penstock.cli.main", "consume", topic_name, "--follow", "--max", "2"]
    with subprocess.Popen([*command, "-b", broker.bootstrap], stdout=subprocess.PIPE) as following:
        penstock("produce", topic_name, piped=b"one\ntwo\n")
        shown, _ = following.communicate(timeout=30)
    assert shown == b"one\ntwo\n"
    assert following.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "piped", "complaint"),
    [
        (["topic", "describe", "nothing-here"], b"", b"there is no topic 'nothing-here'"),
        (["topic", "delete", "nothing-here"], b"", b"there is no topic 'nothing-here'"),
        (["consume", "nothing-here"], b"", b"there is no topic 'nothing-here'"),
        (["topic", "create", "a/b"], b"", b"a/b: "),
        (["topic", "create", "bad-setting", "--set", "durability=maybe"], b"", b"give auto, os or fsync"),
    ],
)
def test_refusal_of_the_broker_is_explained(
    penstock: Penstock, arguments: list[str], piped: bytes, complaint: bytes
) -> None:
    assert complaint in penstock(*arguments, piped=piped, code=1)


def test_a_topic_that_exists_is_not_created_again(penstock: Penstock, topic_name: str) -> None:
    penstock("topic", "create", topic_name)
    assert b"penstock topic alter" in penstock("topic", "create", topic_name, code=1)


def test_a_record_that_is_too_large_is_counted_and_explained(penstock: Penstock, topic_name: str) -> None:
    penstock("topic", "create", topic_name, "--set", "max.message.bytes=1000")
    complaint = penstock("produce", topic_name, piped=b"x" * 5_000 + b"\n", code=1)
    assert b"1 of 1 records were not stored" in complaint
    assert b"max.message.bytes" in complaint


def test_an_unknown_partition_is_explained(penstock: Penstock, topic_name: str) -> None:
    penstock("topic", "create", topic_name)
    complaint = penstock("produce", topic_name, "--partition", "5", "--timeout", "5", piped=b"x\n", code=1)
    assert b"penstock topic describe" in complaint


def test_a_tombstone_has_no_value(penstock: Penstock, topic_name: str) -> None:
    penstock("produce", topic_name, "--key-separator", ":", "--tombstones", piped=b"k:\n")
    [record] = [json.loads(line) for line in penstock("consume", topic_name, "--json").splitlines()]
    assert (record["key"], record["value"]) == ("k", None)


def test_a_view_is_created_described_tested_and_deleted(penstock: Penstock, topic_name: str) -> None:
    view = f"{topic_name}.view"
    penstock("topic", "create", topic_name, "--partitions", "2")
    penstock("produce", topic_name, "--key-separator", ":", piped=b"a:1\nb:2\na:3\n")
    wanted = ("--of", topic_name, "--filter", 'key == "a"')
    tried = json.loads(penstock("view", "test", *wanted, "-n", "1", "--json"))
    assert (tried["records"], tried["matched"], tried["failed"], len(tried["samples"])) == (3, 2, 0, 1)
    assert json.loads(penstock("view", "create", view, *wanted, "--json"))["of"] == topic_name
    described = json.loads(penstock("view", "describe", view, "--json"))
    assert (described["of"], described["filter"], len(described["partitions"])) == (
        topic_name,
        'key == "a"',
        2,
    )
    assert penstock("consume", view, "--format", "{value} ").split() == [b"1", b"3"]
    assert view in penstock("view", "list").decode()
    assert b"has views" in penstock("topic", "delete", topic_name, "--yes", code=1)
    assert b"not a view" in penstock("view", "describe", topic_name, code=1)
    penstock("view", "delete", view, "--yes")
    penstock("topic", "delete", topic_name, "--yes")
