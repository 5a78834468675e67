"""Retry policies of consumer groups over HTTP."""

from __future__ import annotations

from pathlib import Path

from push_stage import Stage, on_stage

from support.whole_brokers import Brokers

PATH = "/v1/groups/billing/retry-policy"


def test_policy_is_set_read_and_deleted(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        body = {"max_attempts": 3, "back_off": "1s", "dead_letter": "letters", "partitions": 1}
        shown = {
            "group": "billing",
            "topic": "billing.retry",
            "max_attempts": 3,
            "back_off": "1s",
            "dead_letter": "letters",
        }
        assert (await stage.http.get(PATH)).status_code == 404
        assert (await stage.http.put(PATH, json=body)).json() == shown
        assert (await stage.http.get(PATH)).json() == shown
        assert (await stage.http.delete(PATH)).status_code == 204
        assert (await stage.http.delete(PATH)).status_code == 404

    on_stage(tmp_path, scenario)


def test_bad_policy_is_refused(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        for body in ({"max_attempts": 1}, {"back_off": "soon"}, {"dead_letter": "a/b"}, {"other": 1}):
            assert (await stage.http.put(PATH, json=body)).status_code == 400, body
        refused = await stage.http.put(PATH, json={"dead_letter": "__consumer_offsets"})
        assert refused.status_code == 400
        assert (await stage.http.get("/v1/topics/billing.retry")).status_code == 404

    on_stage(tmp_path, scenario)
