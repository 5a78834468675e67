from __future__ import annotations

from random import Random

import pytest

from penstock.errors import BrokerError, ErrorCode
from penstock.server.fetch_sessions import MAX_PARTITIONS, FetchSession, FetchSessions, FetchTarget

NOW = 1_000_000


def sessions(slots: int = 2, max_partitions: int = 100, eviction_ms: int = 1_000) -> FetchSessions:
    return FetchSessions(slots, max_partitions, eviction_ms, Random(7))


def target(topic: str, partition: int = 0, offset: int = 0) -> FetchTarget:
    return FetchTarget(topic, None, partition, offset, 1_000)


def opened(cache: FetchSessions, owner: str, *targets: FetchTarget) -> FetchSession:
    session = cache.open(owner, list(targets), False, NOW)
    assert session is not None
    return session


def refused(cache: FetchSessions, owner: str, session_id: int, epoch: int, by_id: bool = False) -> ErrorCode:
    with pytest.raises(BrokerError) as raised:
        cache.resume(owner, session_id, epoch, by_id, NOW)
    return raised.value.code


def test_incremental_requests_carry_increasing_epochs() -> None:
    cache = sessions()
    session = opened(cache, "a", target("orders"))
    assert cache.resume("a", session.id, 1, False, NOW) is session
    assert cache.resume("a", session.id, 2, False, NOW) is session
    assert refused(cache, "a", session.id, 2) is ErrorCode.invalid_fetch_session_epoch


def test_session_epoch_wraps_around_to_one() -> None:
    cache = sessions()
    session = opened(cache, "a", target("orders"))
    session.epoch = 2**31 - 1
    cache.resume("a", session.id, 2**31 - 1, False, NOW)
    assert session.epoch == 1


def test_fetch_session_of_another_connection_is_not_found() -> None:
    cache = sessions()
    session = opened(cache, "a", target("orders"))
    assert refused(cache, "b", session.id, 1) is ErrorCode.fetch_session_id_not_found
    assert refused(cache, "a", session.id + 1, 1) is ErrorCode.fetch_session_id_not_found


def test_fetch_session_with_topic_names_refuses_topic_ids() -> None:
    cache = sessions()
    session = opened(cache, "a", target("orders"))
    assert refused(cache, "a", session.id, 1, by_id=True) is ErrorCode.fetch_session_topic_id_error


def test_incremental_fetch_adds_changes_and_forgets_partitions() -> None:
    cache = sessions()
    session = opened(cache, "a", target("orders", 0), target("orders", 1))
    cache.update(session, [target("orders", 0, offset=9), target("orders", 2)], [target("orders", 1).key])
    assert {key[2]: each.offset for key, each in session.targets.items()} == {0: 9, 2: 0}


def test_full_fetch_session_cache_admits_a_session_when_one_is_idle() -> None:
    cache = sessions(slots=1)
    opened(cache, "a", target("orders"))
    assert cache.open("b", [target("orders")], False, NOW + 999) is None
    assert cache.open("b", [target("orders")], False, NOW + 1_000) is not None
    assert len(cache) == 1


def test_partitions_of_all_fetch_sessions_are_bounded() -> None:
    cache = sessions(slots=10, max_partitions=3)
    opened(cache, "a", target("orders", 0), target("orders", 1))
    assert cache.open("b", [target("orders", 0), target("orders", 1)], False, NOW) is None
    cache.close("a")
    assert cache.open("b", [target("orders", 0), target("orders", 1)], False, NOW) is not None


def test_fetch_session_ends_with_its_connection() -> None:
    cache = sessions(slots=10)
    opened(cache, "a", target("orders"))
    opened(cache, "a", target("payments"))
    assert len(cache) == 1
    cache.close("a")
    assert len(cache) == 0


def test_session_cannot_grow_beyond_the_common_limit() -> None:
    cache = sessions(max_partitions=3)
    session = opened(cache, "a", target("orders", 0), target("orders", 1))
    cache.update(session, [target("orders", 1, offset=5), target("orders", 2)], [])
    with pytest.raises(BrokerError) as raised:
        cache.update(session, [target("orders", 3)], [])
    assert raised.value.code is ErrorCode.fetch_session_id_not_found
    assert len(session.targets) == 3


def test_fetch_of_very_many_partitions_gets_no_session() -> None:
    cache = sessions(max_partitions=10 * MAX_PARTITIONS)
    targets = [target("orders", index) for index in range(MAX_PARTITIONS + 1)]
    assert cache.open("a", targets, False, NOW) is None
    session = opened(cache, "a", *targets[1:])
    with pytest.raises(BrokerError):
        cache.update(session, targets[:1], [])
