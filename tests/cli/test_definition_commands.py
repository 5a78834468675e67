"""`penstock export` and `penstock apply` against a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock import Admin, InvalidSetting
from penstock.cli.main import run
from support.broker_process import Address


@pytest.fixture
def cli(broker: Address, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker.bootstrap)

    def command(*arguments: str, code: int = 0) -> str:
        assert run(arguments) == code
        shown = capfd.readouterr()
        return shown.out if code == 0 else shown.err

    return command


def test_document_is_applied_and_exported(cli: Any, topic_name: str, tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    queue, view = f"{topic_name}-queue", f"{topic_name}-view"
    wanted = {
        "format": 1,
        "topics": [{"name": topic_name, "partitions": 2, "configs": {"retention.ms": "5000"}}],
        "views": [{"name": view, "of": topic_name, "filter": "true"}],
        "queues": [{"name": queue, "of": topic_name, "lock_s": 5}],
        "schedules": [{"name": queue, "cron": "@yearly", "topic": topic_name, "value": "x", "paused": True}],
    }
    file.write_text(json.dumps(wanted))
    dry = cli("apply", "-f", str(file), "--dry-run")
    assert f"+ create topic {topic_name}\n" in dry
    assert topic_name not in cli("topic", "list")
    assert cli("apply", "-f", str(file)) == dry
    assert cli("apply", "-f", str(file)) == "nothing to change\n"
    found = json.loads(cli("export"))
    for section in ("views", "queues"):
        assert [each for each in found[section] if each.get("of") == topic_name] == wanted[section]

    wanted["queues"] = [{"name": queue, "of": topic_name, "lock_s": 7}]
    file.write_text(json.dumps(wanted))
    assert cli("apply", "-f", str(file)) == f"~ change queue {queue}\n    lock_s: 5 -> 7\n"
    steps = json.loads(cli("apply", "-f", str(file), "--dry-run", "--json"))
    assert steps == {"dry_run": True, "steps": []}


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"format": 2}, "/format"),
        ({"format": 1, "queues": [{"name": "jobs", "lock_s": "x"}]}, "/queues/0/lock_s (jobs): "),
        ({"format": 1, "views": [{"name": "v", "of": "a", "filter": "size("}]}, "/views/0: view v: filter: "),
        ({"format": 1, "topics": [{"name": "large", "replication_factor": 50}]}, "create topic large: "),
        ({"format": 1, "frogs": []}, "frogs"),
        ([], "give an object"),
    ],
)
def test_wrong_documents_are_refused_with_the_entry(
    cli: Any, tmp_path: Path, document: Any, text: str
) -> None:
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(document))
    assert text in cli("apply", "-f", str(file), code=1)


def test_python_applies_and_exports(broker: Address, topic_name: str) -> None:
    definitions = Admin(broker.bootstrap).definitions
    wanted = {"format": 1, "topics": [{"name": topic_name, "partitions": 3}]}
    assert [step["action"] for step in definitions.apply(wanted, dry_run=True)] == ["create"]
    assert [step["name"] for step in definitions.apply(wanted)] == [topic_name]
    [topic] = [each for each in definitions.export()["topics"] if each["name"] == topic_name]
    assert topic["partitions"] == 3
    with pytest.raises(InvalidSetting, match="names it twice"):
        definitions.apply({"format": 1, "topics": [{"name": "a"}, {"name": "a"}]})
