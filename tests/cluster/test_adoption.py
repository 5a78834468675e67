"""Copy of a single broker's store to a cluster's store."""

from __future__ import annotations

from random import Random

import pytest

from penstock.cluster import adoption, znodes
from penstock.cluster.adoption import ADOPTING, AdoptionFailed, adopt
from penstock.cluster.controller_election import initialize_store
from penstock.cluster.coordination import Create
from penstock.cluster.memory import Faults, MemoryEnsemble, MemoryStore
from penstock.model import BrokerId

KEPT = {
    "/topics/orders": b"a topic",
    "/topics/orders/0": b"leader epoch 7",
    "/topics/orders/1": b"leader epoch 8",
    "/group_configs/billing": b"settings of a group",
    "/brokers/configs/default": b"settings of all",
    "/brokers/directories/1": b"how it registered last",
}


async def opened(ensemble: MemoryEnsemble, faults: Faults | None = None) -> MemoryStore:
    store = ensemble.client(faults)
    await store.start()
    return store


async def lonely_broker() -> MemoryStore:
    """Store with every kind of node."""
    store = await opened(MemoryEnsemble())
    await initialize_store(store, Random(1))
    await store.multi([Create(path, data) for path, data in KEPT.items()])
    await store.set(znodes.PRODUCER_IDS, b"the next block")
    await store.create(znodes.broker_path(BrokerId(1)), b"registered", ephemeral=True)
    await store.create(znodes.CHANGE_PREFIX, b"an old change", sequential=True)
    await store.create(f"{znodes.DELETED_TOPICS}/some-", sequential=True)
    return store


async def nodes_of(store: MemoryStore) -> dict[str, bytes]:
    return dict(await adoption._read(store))


async def test_all_persistent_nodes_are_adopted() -> None:
    source, target = await lonely_broker(), await opened(MemoryEnsemble())
    adopted = await adopt(source, target)
    assert (adopted.topics, adopted.partitions) == (1, 2)
    found = await nodes_of(target)
    assert found.items() >= KEPT.items()
    assert found[znodes.PRODUCER_IDS] == b"the next block"
    assert found[znodes.CLUSTER] == (await source.get(znodes.CLUSTER)).data
    assert ADOPTING not in found
    for empty in (znodes.CHANGES, znodes.DELETED_TOPICS, znodes.BROKER_IDS):
        assert await target.children(empty) == []


async def test_adopted_store_is_not_changed_again() -> None:
    source, target = await lonely_broker(), await opened(MemoryEnsemble())
    await adopt(source, target)
    await target.set("/topics/orders/0", b"leader epoch 9")
    await adopt(source, target)
    assert (await target.get("/topics/orders/0")).data == b"leader epoch 9"


async def test_store_with_other_content_is_refused_and_unchanged() -> None:
    source = await lonely_broker()
    for others in ("/somebody", znodes.CLUSTER):
        target = await opened(MemoryEnsemble())
        await target.create(others, znodes.encode(znodes.ClusterNode("another")))
        before = await nodes_of(target)
        with pytest.raises(AdoptionFailed):
            await adopt(source, target)
        assert await nodes_of(target) == before


async def test_interrupted_adoption_is_resumed_and_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "MAX_OPERATIONS", 3)
    source, ensemble = await lonely_broker(), MemoryEnsemble()
    target = await opened(ensemble)
    cluster = (await source.get(znodes.CLUSTER)).data
    await target.multi(
        [
            Create(ADOPTING, cluster),
            Create("/topics"),
            Create("/topics/orders", b"as it was"),
            Create("/topics/former", b"a topic that is no more"),
            Create("/topics/former/0", b"and its partition"),
        ]
    )
    await adopt(source, target)
    found = await nodes_of(target)
    assert found.items() >= KEPT.items()
    assert not any("former" in path for path in found)


@pytest.mark.parametrize("seed", range(20))
async def test_adoption_survives_lost_responses(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "MAX_OPERATIONS", 4)
    monkeypatch.setattr(adoption, "MAX_ATTEMPTS", 200)
    source = await lonely_broker()
    target = await opened(
        MemoryEnsemble(), Faults(Random(seed), unknown_not_applied=0.2, unknown_applied=0.2)
    )
    await adopt(source, target)
    assert (await nodes_of(target)).items() >= KEPT.items()
