"""Quotas: entities, Kafka's precedence, and token buckets. Pure; times are monotonic seconds.

The tokens of a bucket may become negative: the request is served, and its client then waits until the debt is
paid (KIP-219).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

BURST_SECONDS = 0.5
"""Time in seconds whose quota a full bucket holds, so that a client may exceed its quota for a moment."""
MAX_BUCKETS = 10_000


class QuotaKey(StrEnum):
    """Quotas by Kafka's names."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


class Default:
    """Name of the default entity, which applies to every user, client id or address without a quota of its own."""

    def __repr__(self) -> str:
        return "<default>"


DEFAULT = Default()
EntityName = str | Default


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """Entity of a quota: user, client id, both, or an address, each by name or as the default."""

    user: EntityName | None = None
    client_id: EntityName | None = None
    ip: EntityName | None = None

    def __str__(self) -> str:
        parts = (("user", self.user), ("client-id", self.client_id), ("ip", self.ip))
        return ", ".join(f"{kind} {name}" for kind, name in parts if name is not None)


Quotas = Mapping[QuotaEntity, Mapping[QuotaKey, float]]


@dataclass(frozen=True, slots=True)
class Limit:
    """Quota in force for a client, and the bucket that it shares with other clients."""

    rate: float
    bucket: tuple[str, ...]
    """Key of the bucket. Clients with the same key share the quota."""


def limit_of(quotas: Quotas, key: QuotaKey, user: str, client_id: str) -> Limit | None:
    """Quota for a user and client id, by Kafka's precedence; None if there is none."""
    for entity, bucket in (
        (QuotaEntity(user, client_id), (user, client_id)),
        (QuotaEntity(user, DEFAULT), (user, client_id)),
        (QuotaEntity(user), (user,)),
        (QuotaEntity(DEFAULT, client_id), (user, client_id)),
        (QuotaEntity(DEFAULT, DEFAULT), (user, client_id)),
        (QuotaEntity(DEFAULT), (user,)),
        (QuotaEntity(client_id=client_id), ("", client_id)),
        (QuotaEntity(client_id=DEFAULT), ("", client_id)),
    ):
        rate = quotas.get(entity, {}).get(key)
        if rate is not None:
            return Limit(rate, bucket)
    return None


def ip_limit_of(quotas: Quotas, ip: str) -> Limit | None:
    """Quota for new connections from an address; None if there is none."""
    for entity in (QuotaEntity(ip=ip), QuotaEntity(ip=DEFAULT)):
        rate = quotas.get(entity, {}).get(QuotaKey.CONNECTION_CREATION_RATE)
        if rate is not None:
            return Limit(rate, (ip,))
    return None


class TokenBucket:
    __slots__ = ("rate", "tokens", "updated")

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self.tokens = rate * BURST_SECONDS
        self.updated = now

    def refill(self, rate: float, now: float) -> None:
        """Add the tokens for the time since the last call. `rate` may have changed since then."""
        self.rate = rate
        elapsed = max(0.0, now - self.updated)
        self.tokens = min(rate * BURST_SECONDS, self.tokens + elapsed * rate)
        self.updated = now

    @property
    def wait_seconds(self) -> float:
        """Seconds until the debt is paid; 0 without debt, infinite if the rate is 0."""
        if self.tokens >= 0:
            return 0.0
        return -self.tokens / self.rate if self.rate > 0 else math.inf


class Buckets:
    """Token buckets of one quota. Their number is limited: buckets without debt are dropped first."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, ...], TokenBucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def charge(self, limit: Limit, amount: float, now: float) -> float:
        """Take tokens from the bucket. Returns the seconds for which the client has to wait."""
        bucket = self._buckets.get(limit.bucket)
        if bucket is None:
            if len(self._buckets) >= MAX_BUCKETS:
                self._drop(now)
            bucket = self._buckets[limit.bucket] = TokenBucket(limit.rate, now)
        bucket.refill(limit.rate, now)
        bucket.tokens -= amount
        return bucket.wait_seconds

    def wait_seconds(self, limit: Limit, now: float) -> float:
        """Seconds for which the client has to wait now."""
        return self.charge(limit, 0.0, now)

    def clear(self) -> None:
        self._buckets.clear()

    def _drop(self, now: float) -> None:
        indebted = {}
        for key, bucket in self._buckets.items():
            bucket.refill(bucket.rate, now)
            if bucket.tokens < 0:
                indebted[key] = bucket
        if len(indebted) >= MAX_BUCKETS:
            worst = sorted(indebted.items(), key=lambda item: item[1].wait_seconds, reverse=True)
            indebted = dict(worst[: MAX_BUCKETS // 2])
        self._buckets = indebted
