"""The client that deletes a topic and creates another one with the same name."""

from __future__ import annotations

import asyncio

import pytest

from penstock.errors import BrokerError, ErrorCode
from simulation.clients.recreator import Recreator
from simulation.machine.host import SimulatedWorld
from simulation.machine.loop import SimulationLoop
from simulation.machine.trace import Trace
from simulation.models.partition_history import PartitionHistory, RecordedEnsemble
from simulation.models.topic_model import TopicModel
from simulation.scenarios.broker_host import BrokerHost
from simulation.scenarios.stage import Stage

SETTINGS = {"auto.create.topics.enable": "false"}


async def created(recreator: Recreator) -> TopicModel:
    await recreator._create()
    topic = recreator._topic
    assert topic is not None
    while topic.id is None:
        await asyncio.sleep(0.05)
        await recreator._find_id(topic)
    return topic


def test_leader_of_the_deleted_topic_is_not_read_as_one_of_the_new_topic(
    loop: SimulationLoop, trace: Trace
) -> None:
    async def scenario() -> None:
        world = SimulatedWorld(1, loop, trace)
        ensemble = RecordedEnsemble(PartitionHistory(trace, loop.time))
        stage = Stage(
            world, [BrokerHost(world, node, SETTINGS, ensemble, 4.0) for node in (1, 2, 3)], ensemble
        )
        for member in stage.members:
            await member.start()
        recreator = Recreator(stage)
        old = await created(recreator)
        await recreator._produce(old)
        node_id = stage.history.now[old.name, 0].leader
        routing = recreator._routing
        routing._brokers = {node: broker for node, broker in routing._brokers.items() if node != node_id}
        stage.member(node_id).disconnect_store("severed")  # it continues to lead the deleted topic
        await recreator._delete(old)
        new = await created(recreator)
        routing._brokers = {node_id: stage.connection("reader", node_id)}
        routing._leaders[new.name, 0], routing._epochs[new.name, 0] = node_id, 0
        with pytest.raises(BrokerError) as raised:
            await recreator._read(new)
        assert raised.value.code is ErrorCode.unknown_topic_id

    loop.run_until_complete(scenario())
