"""`penstock pipeline apply|plan|list|status|pause|resume|delete|logs`, and `/v1/pipelines`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.cli.main import run
from penstock.testing.process import BrokerProcess

GOOD = """
pipelines:
  - name: archive
    source: {pattern: "orders-.*"}
    target: {archive: /data/archive, keep: 365d}
    schedule: {every: 1m}
  - name: clean
    source: {topics: [orders]}
    schema: {file: order.json}
    transform: {sql: "select key, id from source"}
    dead_letter: orders-bad
    target: {topic: orders-clean}
"""
WRONG = """\
pipelines:
  - name: with blank
    sorce: 1
    source: {topics: [a, "b c"]}
    target: {table: t}
    target: {topic: a}
  - name: other
    source: {topics: [a]}
    target: {table: x, chart: 3}
    schema: {file: no-such-file.json}
    schedule:
      cron: "61 * * * *"
    when: !!python/object:os.system x
"""


@pytest.fixture
def bootstrap(penstock_session_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", penstock_session_broker.bootstrap)
    return penstock_session_broker.bootstrap


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run(["pipeline", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_file_with_many_mistakes_reports_all_with_lines_and_stores_nothing(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(WRONG)
    before = shown(capsys, "list")
    assert run(["pipeline", "apply", str(path)]) == 2
    said = capsys.readouterr().err
    for line, text in (
        (2, "is not a name"),
        (3, "did you mean 'source'"),
        (4, "not a topic name"),
        (6, "the key 'target' is given twice"),
        (6, "must not write"),
        (9, "give a string"),
        (10, "cannot read no-such-file.json"),
        (12, "not a cron expression"),
        (13, "cannot be used: give a string"),
    ):
        assert any(f"{path}:{line}: " in each and text in each for each in said.splitlines()), (
            line,
            text,
            said,
        )
    assert shown(capsys, "list") == before


def test_file_that_is_not_yaml_names_the_line(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("pipelines:\n  - name: [\n")
    assert run(["pipeline", "plan", str(path)]) == 2
    assert f"{path}:3: " in capsys.readouterr().err


def test_pipelines_are_planned_applied_changed_paused_and_deleted(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    (tmp_path / "order.json").write_text('{"type": "object", "properties": {"id": {"type": "integer"}}}')
    outcomes = [each["outcome"] for each in shown(capsys, "plan", str(path))["pipelines"]]
    assert outcomes == ["created", "created"]
    assert shown(capsys, "list") == []
    shown(capsys, "apply", str(path))
    path.write_text(GOOD.replace("1m", "2m"))
    planned = shown(capsys, "plan", str(path))["pipelines"]
    assert [each["outcome"] for each in planned] == ["changed", "unchanged"]
    assert planned[0]["changes"] == ["schedule"]
    shown(capsys, "apply", str(path))
    shown(capsys, "pause", "archive")
    found = shown(capsys, "status", "archive")
    assert (found["state"], found["definition"]["schedule"]) == ("paused", {"every": "2m"})
    assert shown(capsys, "status", "clean")["state"] == "waiting for a supervisor"
    shown(capsys, "resume", "archive")
    assert shown(capsys, "logs", "archive") == []
    for name in ("archive", "clean"):
        shown(capsys, "delete", name, "--yes")
    assert run(["pipeline", "status", "archive"]) == 1
    assert "there is no pipeline 'archive'" in capsys.readouterr().err


def test_declared_pipelines_are_managed_over_http(penstock_session_broker: BrokerProcess) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{penstock_session_broker.http_port}") as http:
        document = {
            "source": {"topics": ["orders"]},
            "target": {"table": "/data/t"},
            "schedule": {"every": "1m"},
        }
        assert http.post("/v1/pipelines", json=document).status_code == 400
        assert http.post("/v1/pipelines", json={**document, "name": "web"}).status_code == 201
        assert http.put("/v1/pipelines/web", json=document).status_code == 200
        refused = http.put(
            "/v1/pipelines/web", json={**document, "schedule": {"every": "soon"}, "target": {}}
        )
        assert refused.status_code == 400
        assert "/schedule/every: 'soon' is not a duration" in refused.json()["detail"]
        assert "/target: give a topic" in refused.json()["detail"]
        assert [each["name"] for each in http.get("/v1/pipelines").json()["pipelines"]] == ["web"]
        assert http.post("/v1/pipelines/web/pause").json()["state"] == "paused"
        assert http.post("/v1/pipelines/web/resume").json()["paused"] is False
        assert http.post("/v1/pipelines/web/run").status_code == 202
        assert http.get("/v1/pipelines/web").json()["definition"]["target"] == {"table": "/data/t"}
        assert http.get("/v1/pipelines/web/logs").json() == {"events": []}
        assert http.delete("/v1/pipelines/web").status_code == 204
        assert http.get("/v1/pipelines/web").status_code == 404
