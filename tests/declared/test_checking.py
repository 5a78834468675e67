"""Checks of pipeline documents: every problem is found, with the place of the value that is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.declared.checking import check_document, check_pipeline
from penstock.declared.definition import definition_of

GOOD: dict[str, Any] = {
    "name": "clean",
    "source": {"topics": ["orders"]},
    "schema": "id bigint not null, total double",
    "transform": {"sql": "select id from source", "watermark": {"column": "timestamp", "delay": "10m"}},
    "dead_letter": "orders-bad",
    "target": {"topic": "orders-clean", "table": "/data/clean"},
    "schedule": {"cron": "*/5 * * * *", "timezone": "Europe/Paris"},
    "timeout": "10m",
}


def test_good_pipeline_has_no_problems_and_is_read() -> None:
    assert check_pipeline(GOOD) == []
    definition = definition_of(GOOD)
    assert definition.source.topics == ("orders",)
    assert definition.schedule.cron == "*/5 * * * *"
    assert definition.timeout_ms == 600_000
    assert definition.transform is not None
    assert definition.transform.watermark == ("timestamp", "600000 milliseconds")


@pytest.mark.parametrize(
    ("changes", "pointer", "text"),
    [
        ({"name": "with blank"}, "/name", "is not a name"),
        ({"nmae": "x"}, "/nmae", "did you mean 'name'?"),
        ({"source": {}}, "/source", "either topics or pattern"),
        ({"source": {"pattern": "("}}, "/source/pattern", "not a regular expression"),
        ({"source": {"topics": ["a", "b c"]}}, "/source/topics/1", "not a topic name"),
        ({"source": {"topics": ["a"], "start": "middle"}}, "/source/start", "earliest or latest"),
        ({"schema": "id bigin"}, "/schema", "unknown type 'bigin'"),
        (
            {"schema": {"type": "object", "properties": {"a": {"type": "x"}}}},
            "/schema/properties/a/type",
            "'x'",
        ),
        ({"schema": {"type": "record", "name": "r", "fields": []}}, "/schema/fields", "needs fields"),
        ({"schema": 3}, "/schema", "give a JSON Schema"),
        ({"transform": {"sql": "x", "function": "a:b"}}, "/transform", "either sql or function"),
        ({"transform": {"function": "a.b"}}, "/transform/function", "package.module:function"),
        ({"transform": {"sql": "x", "mode": "both"}}, "/transform/mode", "stream or batch"),
        (
            {"transform": {"sql": "x", "watermark": {"column": "t"}}},
            "/transform/watermark",
            "delay is missing",
        ),
        ({"target": {}}, "/target", "give a topic, a table"),
        ({"target": {"topic": "orders"}}, "/target/topic", "must not write"),
        ({"target": {"archive": "/a", "table": "/t"}}, "/target/archive", "only target"),
        ({"target": {"topic": "t", "chart": "c.png"}}, "/target/chart", "add table"),
        ({"dead_letter": "orders"}, "/dead_letter", "must not write"),
        ({"schedule": {"every": "5x"}}, "/schedule/every", "not a duration"),
        ({"schedule": {"cron": "61 * * * *"}}, "/schedule/cron", "not a cron expression"),
        ({"schedule": {"cron": "* * * * *", "timezone": "Mars/X"}}, "/schedule/timezone", "no timezone"),
        ({"schedule": "hourly"}, "/schedule", "give a mapping"),
        ({"timeout": "soon"}, "/timeout", "not a duration"),
    ],
)
def test_problem_has_the_place_and_the_reason(changes: dict[str, Any], pointer: str, text: str) -> None:
    found = check_pipeline({**GOOD, **changes})
    assert any(each.pointer == pointer and text in each.text for each in found), found


def test_all_problems_of_a_document_are_found_at_once() -> None:
    wrong = {**GOOD, "name": "a b", "timeout": 3, "target": {"table": "/data/clean", "chart": ""}}
    found = {each.pointer for each in check_document({"pipelines": [GOOD, wrong, 7], "more": 1})}
    assert found >= {
        "/more",
        "/pipelines/1/name",
        "/pipelines/1/timeout",
        "/pipelines/1/target/chart",
        "/pipelines/1/target/table",
        "/pipelines/2",
    }
    assert {each.pointer for each in check_document({"pipelines": [GOOD, GOOD]})} >= {"/pipelines/1/name"}


@pytest.mark.parametrize("document", [None, [], 3, "text", {}, {"pipelines": {}}, {"pipelines": []}])
def test_documents_that_are_no_pipelines_are_refused(document: Any) -> None:
    assert check_document(document)
