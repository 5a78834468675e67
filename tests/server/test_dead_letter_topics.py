"""Topics for dead letters: which ones are permitted, automatic creation, the alarm of a missing one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from test_dead_letters import letters, offsets, set_topic

from penstock.errors import ErrorCode
from penstock.observability.alarms import AlarmKind
from support.eventually import eventually_async
from support.harness import Harness, serve
from support.queue_wire import QueueClient
from support.share_wire import INCREMENTAL_ALTER_CONFIGS, REJECT, SETTINGS, ShareMember, configure, run

GROUP, TOPIC, BROKER, SET = 32, 2, 4, 0
NAME = "errors.deadletterqueue.topic.name"


async def alter(broker: Harness, kind: int, name: str, **configs: str) -> tuple[ErrorCode, str]:
    alterations = [
        {"name": each.replace("_", "."), "config_operation": SET, "value": value}
        for each, value in configs.items()
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": alterations}
    answer = await broker.ask(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
    return ErrorCode(answer.responses[0].error_code), answer.responses[0].error_message or ""


async def refusal(broker: Harness, group: str, **configs: str) -> str:
    code, message = await alter(broker, GROUP, group, **configs)
    assert code is ErrorCode.invalid_config, code
    return message


def test_dead_letter_topic_that_is_the_own_topic_or_closes_a_cycle_is_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        for name in ("a", "b", "c"):
            await broker.create(name, 1)
            await configure(broker, name, queue_topic=name)
        dead = NAME.replace(".", "_")
        assert "reads it" in await refusal(broker, "a", **{dead: "a"})
        assert (await alter(broker, GROUP, "a", **{dead: "b"}))[0] is ErrorCode.none
        assert (await alter(broker, GROUP, "b", **{dead: "c"}))[0] is ErrorCode.none
        assert "circulate forever" in await refusal(broker, "c", **{dead: "a"})
        assert (await alter(broker, GROUP, "d", **{dead: "a"}))[0] is ErrorCode.none
        assert "circulate forever" in await refusal(broker, "d", share_queue_topic="c")
        assert broker.context.image.group_configs["d"].values == {NAME: "a"}

    serve(tmp_path, scenario, SETTINGS)


def test_internal_topics_and_topics_that_do_not_permit_it_are_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders", 1)
        dead = NAME.replace(".", "_")
        assert "internal" in await refusal(broker, "g", **{dead: "__consumer_offsets"})
        permit = "errors_deadletterqueue_group_enable"
        assert (await alter(broker, TOPIC, "orders", **{permit: "false"}))[0] is ErrorCode.none
        assert "group.enable is false" in await refusal(broker, "g", **{dead: "orders"})
        prefix = {"errors_deadletterqueue_topic_name_prefix": "dlq."}
        assert (await alter(broker, BROKER, "", **prefix))[0] is ErrorCode.none
        assert "does not begin with 'dlq.'" in await refusal(broker, "g", **{dead: "other"})
        assert (await alter(broker, GROUP, "g", **{dead: "dlq.other"}))[0] is ErrorCode.none

    serve(tmp_path, scenario, SETTINGS)


def test_missing_topic_is_created_where_that_is_enabled(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await set_topic(broker, "dlq.t")
        queue = QueueClient(broker)
        (given,) = await queue.receive(1)
        assert await queue.settle(given, REJECT) is ErrorCode.none
        (leader,) = broker.context.share.partitions.all
        await eventually_async(lambda: "does not exist" in leader.letters.problem)
        enable = {"errors_deadletterqueue_auto_create_topics_enable": "true"}
        assert (await alter(broker, BROKER, "", **enable))[0] is ErrorCode.none
        await eventually_async(lambda: "dlq.t" in broker.context.image.topics)
        await eventually_async(lambda: offsets(letters(broker, "dlq.t")) == [given.offset])
        created = broker.context.image.topics["dlq.t"]
        assert created.configs["errors.deadletterqueue.group.enable"] == "true"
        assert len(created.partitions) == 1

    run(tmp_path, scenario)


def test_health_shows_dead_letters_that_cannot_be_written(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        upkeep = broker.context.queue_upkeep
        assert upkeep is not None
        await set_topic(broker)
        queue = QueueClient(broker)
        (first,) = await queue.receive(1)
        assert await queue.settle(first, REJECT) is ErrorCode.none
        (leader,) = broker.context.share.partitions.all
        await eventually_async(lambda: bool(leader.letters.problem))
        upkeep.alarms.run()
        (alarm,) = broker.context.alarms.present
        assert alarm.kind is AlarmKind.BLOCKED_DEAD_LETTERS
        assert "group g: 1 records wait: the dead-letter topic dead" in alarm.detail
        await broker.create("dead", 1)
        await eventually_async(lambda: len(letters(broker)) == 1)
        await eventually_async(lambda: not leader.letters.problem)
        upkeep.alarms.run()
        assert broker.context.alarms.present == ()

    run(tmp_path, scenario)


@pytest.mark.parametrize("limit", [1, 2])
def test_alarm_of_unwritten_dead_letters_reports_stopped_deliveries(tmp_path: Path, limit: int) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await set_topic(broker)
        queue = QueueClient(broker)
        (first,) = await queue.receive(1)
        (leader,) = broker.context.share.partitions.all
        assert leader.partition is not None
        leader.partition.follow_settings(replace(leader.partition.settings, max_archiving=limit))
        assert await queue.settle(first, REJECT) is ErrorCode.none
        await eventually_async(lambda: bool(leader.letters.problem))
        assert broker.context.queue_upkeep is not None
        broker.context.queue_upkeep.alarms.run()
        (alarm,) = broker.context.alarms.present
        assert ("no others are delivered" in alarm.detail) == (limit == 1)
        assert bool(await queue.receive(1)) == (limit == 2)

    run(tmp_path, scenario)
