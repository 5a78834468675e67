"""Schedules over HTTP."""

from __future__ import annotations

from pathlib import Path

from push_stage import Stage, on_stage

from support.eventually import eventually_async
from support.whole_brokers import Brokers

PATH = "/v1/schedules"
NEW = {"name": "s", "cron": "@every 1h", "topic": "t", "value": "v", "headers": {"a": "b"}}


def test_schedule_is_created_run_paused_and_deleted(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        http = stage.http
        assert (await http.get(PATH)).json() == {"schedules": []}
        assert (await http.post("/v1/topics", json={"name": "t", "partitions": 1})).status_code == 201
        made = await http.post(PATH, json=NEW)
        assert made.status_code == 201, made.text
        assert made.headers["location"] == f"{PATH}/s"
        shown = (await http.get(f"{PATH}/s")).json()
        assert shown == made.json()
        assert len(shown["next_times"]) == 5
        assert (shown["value"], shown["headers"]) == ("v", [{"name": "a", "value": "b"}])
        assert (await http.post(PATH, json=NEW)).status_code == 409
        ran = await http.post(f"{PATH}/s/run")
        assert ran.status_code == 202

        async def fired() -> bool:
            return bool((await http.get(f"{PATH}/s")).json()["fired"] == 1)

        await eventually_async(fired)
        assert (await http.post(f"{PATH}/s/pause")).json()["paused"] is True
        assert (await http.get(PATH)).json()["schedules"][0]["next"] is None
        assert (await http.post(f"{PATH}/s/resume")).json()["paused"] is False
        assert (await http.delete(f"{PATH}/s")).status_code == 204
        assert (await http.delete(f"{PATH}/s")).status_code == 404
        assert (await http.get(f"{PATH}/s")).status_code == 404

    on_stage(tmp_path, scenario)


def test_bad_schedule_is_refused(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        http = stage.http
        assert (await http.post("/v1/topics", json={"name": "t", "partitions": 1})).status_code == 201
        for change, status in (
            ({"cron": "0 0 30 2 *"}, 400),
            ({"cron": ""}, 400),
            ({"cron": "@every 0s"}, 400),
            ({"timezone": "Mars/Base"}, 400),
            ({"topic": "other"}, 404),
            ({"topic": "__schedules"}, 400),
            ({"name": "a/b"}, 400),
            ({"catch_up": "some"}, 400),
            ({"value_base64": "dg=="}, 400),
            ({"value": None, "value_base64": "?"}, 400),
            ({"headers": {"penstock-schedule": "x"}}, 400),
            ({"value": "x" * 2_000_000}, 413),
            ({"other": 1}, 400),
        ):
            refused = await http.post(PATH, json={**NEW, **change})
            assert refused.status_code == status, (change, refused.text[:300])
            assert refused.json()["detail"]
        assert (await http.get(PATH)).json() == {"schedules": []}

    on_stage(tmp_path, scenario)
