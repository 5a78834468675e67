from __future__ import annotations

from penstock.net.request_memory import RequestMemory


def test_any_connection_may_read_below_the_limit() -> None:
    memory = RequestMemory(1_600)
    memory.take(1_599)
    assert memory.has_room(1_599)


def test_over_the_limit_only_small_holders_read() -> None:
    memory = RequestMemory(1_600)
    memory.connections = 2
    memory.take(1_600)
    assert memory.has_room(100)
    assert not memory.has_room(101)


def test_fair_share_shrinks_with_more_connections() -> None:
    memory = RequestMemory(1_600)
    memory.connections = 160
    memory.take(1_600)
    assert memory.has_room(10)
    assert not memory.has_room(11)


def test_waiting_connections_resume_when_memory_is_released() -> None:
    memory, resumed = RequestMemory(100), []
    memory.take(150)

    def stays() -> None:
        resumed.append("stays")

    def leaves() -> None:
        resumed.append("leaves")

    memory.when_room(stays)
    memory.when_room(leaves)
    memory.forget(leaves)
    memory.give_back(50)
    assert resumed == []
    memory.give_back(1)
    assert resumed == ["stays"]
