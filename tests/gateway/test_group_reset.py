"""Reset of a group's offsets over HTTP: by a shift, from another group, as a dry run; deleted offsets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from figures_stage import produce, with_gateway


async def committed(http: httpx.AsyncClient, group: str) -> dict[int, int | None]:
    described = (await http.get(f"/v1/groups/{group}")).json()
    return {each["partition"]: each["committed"] for each in described["offsets"]}


async def reset(http: httpx.AsyncClient, group: str, **body: Any) -> httpx.Response:
    return await http.post(f"/v1/groups/{group}/reset", json=body)


async def prepare(http: httpx.AsyncClient) -> None:
    await http.post("/v1/topics", json={"name": "t", "partitions": 2})
    for partition in (0, 1):
        await produce(http, "t", *"abcdefghij", partition=partition)
    places = [{"topic": "t", "partition": 0, "offset": 5}, {"topic": "t", "partition": 1, "offset": 2}]
    assert (await reset(http, "g", offsets=places)).status_code == 200


def test_shift_stays_within_the_partition(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        await prepare(http)
        assert (await reset(http, "g", topic="t", shift=-3)).status_code == 200
        assert await committed(http, "g") == {0: 2, 1: 0}
        assert (await reset(http, "g", topic="t", shift=100, partitions=[1])).status_code == 200
        assert await committed(http, "g") == {0: 2, 1: 10}

    with_gateway(tmp_path, scenario)


def test_dry_run_shows_before_and_after_and_changes_nothing(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        await prepare(http)
        shown = (await reset(http, "g", topic="t", to="latest", dry_run=True)).json()["offsets"]
        assert shown == [
            {"topic": "t", "partition": 0, "offset": 10, "before": 5},
            {"topic": "t", "partition": 1, "offset": 10, "before": 2},
        ]
        assert await committed(http, "g") == {0: 5, 1: 2}

    with_gateway(tmp_path, scenario)


def test_offsets_are_copied_from_another_group(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        await prepare(http)
        assert (await reset(http, "copy", from_group="g")).status_code == 200
        assert await committed(http, "copy") == {0: 5, 1: 2}
        assert (await reset(http, "copy", from_group="nobody")).status_code == 404
        for body in ({"topic": "t"}, {"shift": 1}, {"topic": "t", "shift": 1, "to": "latest"}, {}):
            assert (await reset(http, "copy", **body)).status_code == 400

    with_gateway(tmp_path, scenario)


def test_offsets_of_a_topic_are_deleted(tmp_path: Path) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        await prepare(http)
        assert (await http.delete("/v1/groups/g/topics/t")).status_code == 204
        assert (await http.delete("/v1/groups/g/topics/t")).status_code == 404
        assert (await http.delete("/v1/groups/g/members/nobody")).status_code == 404

    with_gateway(tmp_path, scenario)
