"""Shared views are removed when they have no readers and no committed offsets, and not before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from penstock.groups.offsets import Offsets
from penstock.server.inspection import used_views
from penstock.server.shared_views import UNUSED_ROUNDS, SharedViews
from support.group_wire import OFFSET_DELETE, SETTINGS, committed, fetched
from support.harness import Harness, serve
from support.share_wire import ShareMember

VIEW = "orders.view-1"
FILTER = 'key == "k"'
INCREMENTAL_ALTER_CONFIGS, FETCH, DELETE_GROUPS = 44, 1, 42


async def begin(broker: Harness) -> SharedViews:
    await broker.create("orders")
    await broker.create(VIEW, view_of="orders", view_filter=FILTER, view_shared="true")
    await broker.create("kept", view_of="orders", view_filter=FILTER)
    return SharedViews(broker.context, broker.context.replicas._logger)


async def pass_rounds(views: SharedViews, count: int = UNUSED_ROUNDS + 1) -> None:
    for _ in range(count):
        await views.run()


def is_there(broker: Harness) -> bool:
    return VIEW in broker.context.image.topics


def play(path: Path, scenario: Callable[[Harness], Awaitable[None]]) -> None:
    serve(path, scenario, SETTINGS)


def test_a_view_that_is_not_used_is_removed(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        views = await begin(broker)
        await pass_rounds(views, UNUSED_ROUNDS)
        assert is_there(broker)
        await pass_rounds(views, 1)
        assert not is_there(broker)
        assert "kept" in broker.context.image.topics, "other views stay"

    play(tmp_path, scenario)


async def check_committed(broker: Harness) -> None:
    views = await begin(broker)
    assert await committed(broker, VIEW, {0: 5}) == [0]
    await pass_rounds(views)
    assert await fetched(broker) == {(VIEW, 0): (5, 3, "note")}
    fields = {"group_id": "g", "topics": [{"name": VIEW, "partitions": [{"partition_index": 0}]}]}
    await broker.ask(OFFSET_DELETE, 0, fields)
    await pass_rounds(views)
    assert not is_there(broker)


def test_a_view_with_committed_offsets_stays(tmp_path: Path) -> None:
    play(tmp_path, check_committed)


def test_a_group_position_that_is_lost_with_its_view_is_noticed(tmp_path: Path) -> None:
    with patch.object(Offsets, "all", lambda _: iter(())), pytest.raises(AssertionError):
        play(tmp_path, check_committed)


def test_a_view_with_readers_stays(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        views = await begin(broker)
        await broker.append("orders", b"a")
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}
        fields = {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": 1_000,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": VIEW, "partitions": [partition]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        await broker.ask(FETCH, 11, fields)
        await pass_rounds(views)
        assert is_there(broker)
        with patch.object(used_views, "READ_SECONDS", 0.0):
            await pass_rounds(views)
        assert not is_there(broker)

    play(tmp_path, scenario)


def test_returning_consumer_restarts_the_removal_time_of_a_shared_view(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        views = await begin(broker)
        await pass_rounds(views, UNUSED_ROUNDS)
        config = {"name": "view.filter", "config_operation": 0, "value": FILTER}
        resource = {"resource_type": 2, "resource_name": VIEW, "configs": [config]}
        await broker.ask(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
        await pass_rounds(views, UNUSED_ROUNDS)
        assert is_there(broker)

    play(tmp_path, scenario)


def test_no_view_is_removed_while_a_broker_does_not_respond(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        views = await begin(broker)
        with patch.object(SharedViews, "_ask", side_effect=OSError("no route")):
            await pass_rounds(views)
        assert is_there(broker)

    play(tmp_path, scenario)


def test_no_view_is_removed_before_all_offsets_are_loaded(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        views = await begin(broker)
        assert await committed(broker, "orders", {0: 1}) == [0]
        answer = {"views": [], "shards": 0}
        with patch.object(SharedViews, "_ask", return_value=answer):
            await pass_rounds(views)
        assert is_there(broker)

    play(tmp_path, scenario)


def test_view_with_the_state_of_a_share_group_stays(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        views = await begin(broker)
        member = ShareMember(broker)
        await member.join(VIEW)
        await member.heartbeat(member_epoch=-1)
        await pass_rounds(views)
        assert is_there(broker)
        await broker.ask(DELETE_GROUPS, 2, {"groups_names": ["g"]})
        await pass_rounds(views)
        assert not is_there(broker)

    play(tmp_path, scenario)
