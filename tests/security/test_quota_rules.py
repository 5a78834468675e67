"""Quotas: precedence, token buckets, and the rate at which a throttled client is held."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from penstock.security.acl import Principal
from penstock.security.quota import (
    BURST_SECONDS,
    DEFAULT,
    MAX_BUCKETS,
    Buckets,
    EntityName,
    Limit,
    QuotaEntity,
    QuotaKey,
    Quotas,
    TokenBucket,
    limit_of,
)
from penstock.server.client_quotas import ClientQuotas, MeasuredRequest
from support.manual_clock import ManualClock

RATE = QuotaKey.PRODUCER_BYTE_RATE
PRECEDENCE: list[QuotaEntity] = [
    QuotaEntity("alice", "app"),
    QuotaEntity("alice", DEFAULT),
    QuotaEntity("alice"),
    QuotaEntity(DEFAULT, "app"),
    QuotaEntity(DEFAULT, DEFAULT),
    QuotaEntity(DEFAULT),
    QuotaEntity(client_id="app"),
    QuotaEntity(client_id=DEFAULT),
]


@given(st.sets(st.sampled_from(range(len(PRECEDENCE)))))
def test_most_specific_quota_is_in_force(present: set[int]) -> None:
    quotas: Quotas = {PRECEDENCE[place]: {RATE: float(place + 1)} for place in present}
    found = limit_of(quotas, RATE, "alice", "app")
    assert (None if found is None else found.rate) == (float(min(present) + 1) if present else None)


def test_quotas_of_others_and_of_other_kinds_do_not_apply() -> None:
    names: tuple[EntityName | None, ...] = ("bob", None)
    others = [QuotaEntity(user, client) for user, client in product(names, ("other", None)) if user or client]
    quotas: Quotas = {entity: {RATE: 1.0} for entity in others}
    assert limit_of(quotas, RATE, "alice", "app") is None
    assert limit_of({QuotaEntity("alice"): {RATE: 1.0}}, QuotaKey.CONSUMER_BYTE_RATE, "alice", "app") is None


def test_clients_of_a_user_share_the_quota_of_the_user_and_not_that_of_each_client() -> None:
    of_user: Quotas = {QuotaEntity(DEFAULT): {RATE: 1.0}}
    shares = {limit_of(of_user, RATE, "alice", client) for client in ("a", "b")}
    assert len(shares) == 1
    assert limit_of(of_user, RATE, "bob", "a") not in shares
    of_clients: Quotas = {QuotaEntity("alice", DEFAULT): {RATE: 1.0}}
    assert len({limit_of(of_clients, RATE, "alice", client) for client in ("a", "b")}) == 2


@given(
    st.floats(1, 1e9),
    st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1e9)), min_size=1, max_size=30),
)
def test_a_client_that_waits_gets_at_most_its_rate_and_a_burst(
    rate: float, steps: list[tuple[float, float]]
) -> None:
    """Amounts before the last one: the debt of the last one is still open."""
    bucket, now, total = TokenBucket(rate, 0.0), 0.0, 0.0
    for pause, amount in steps:
        now += pause + bucket.wait_seconds
        bucket.refill(rate, now)
        assert total <= rate * (now + BURST_SECONDS) * (1 + 1e-9) + 1e-6
        bucket.tokens -= amount
        total += amount
    assert bucket.wait_seconds >= 0


def test_a_million_client_ids_use_bounded_memory() -> None:
    buckets = Buckets()
    for number in range(MAX_BUCKETS * 3):
        buckets.charge(Limit(10.0, ("", str(number))), 1_000.0 if number == 7 else 1.0, 0.0)
    assert len(buckets) <= MAX_BUCKETS
    assert buckets.wait_seconds(Limit(10.0, ("", "7")), 0.0) > 90


def test_a_clock_that_jumps_back_gives_no_tokens() -> None:
    bucket = TokenBucket(10.0, 100.0)
    bucket.tokens = -50.0
    bucket.refill(10.0, 1.0)
    assert bucket.wait_seconds == 5.0


class Client:
    """Client that sends as fast as the broker lets it."""

    def __init__(self, clock: ManualClock, user: str = "alice") -> None:
        self.principal = Principal("User", user)
        self.clock = clock
        self.muted_until = 0.0

    @property
    def mute(self) -> Callable[[float], None]:
        return self._mute

    def _mute(self, seconds: float) -> None:
        self.muted_until = self.clock.monotonic() + seconds


def test_producer_at_ten_times_its_quota_is_held_within_five_percent() -> None:
    clock = ManualClock()
    quotas = ClientQuotas(clock)
    quotas.configure({QuotaEntity("alice"): {RATE: 1_000_000.0}})
    client, sent, size = Client(clock), 0, 100_000
    start = clock.monotonic()
    while clock.monotonic() - start < 30:
        if clock.monotonic() >= client.muted_until:
            quotas.on_request(client, MeasuredRequest(0, 9, "app", size, 0.0), [])
            sent += size
        clock.advance(10)
    assert math.isclose(sent, 30_000_000, rel_tol=0.05)
    assert quotas.throttled_requests > 0


def test_client_without_a_quota_and_brokers_are_never_muted() -> None:
    clock = ManualClock()
    quotas = ClientQuotas(clock)
    quotas.configure({QuotaEntity("alice"): {RATE: 1.0}})
    bob, broker = Client(clock, "bob"), Client(clock)
    broker.principal = Principal("Broker", "alice")
    for client in (bob, broker):
        quotas.on_request(client, MeasuredRequest(0, 9, "app", 10**9, 1.0), [])
        assert client.muted_until == 0.0


def test_limits_of_a_client_follow_changes_of_quotas() -> None:
    quotas = ClientQuotas(ManualClock())
    assert not quotas.has_limits("alice", "app")
    for entity in (QuotaEntity("alice"), QuotaEntity(client_id="app"), QuotaEntity("alice", DEFAULT)):
        for key in (RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE):
            quotas.configure({entity: {key: 1.0}})
            assert quotas.has_limits("alice", "app"), (entity, key)
            assert not quotas.has_limits("bob", "other")
            quotas.configure({})
            assert not quotas.has_limits("alice", "app")
