"""Bounded table of requests that this broker refused for lack of a right, or, with `authorization.mode=report`, that
`enforce` would refuse.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.clock import Clock
from penstock.observability.logs import Logger
from penstock.security.acl import Operation, Principal, ResourceType
from penstock.server.audit import AuditLog

MAX_REFUSALS = 5_000
MAX_NAME_CHARACTERS = 300


@dataclass(slots=True)
class Refusal:
    """Refused requests of one principal from one host that lack the same right."""

    principal: str
    host: str
    operation: Operation
    kind: ResourceType
    name: str
    count: int
    first_ms: int
    last_ms: int


class Refusals:
    def __init__(self, clock: Clock, log: Logger, audit: AuditLog | None = None) -> None:
        self.total = 0
        """Number of all refusals, including those for which the table had no room."""
        self._clock = clock
        self._log = log
        self._audit = audit
        self._found: dict[tuple[str, str, Operation, ResourceType, str], Refusal] = {}

    def record(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        kind: ResourceType,
        name: str,
        is_enforced: bool,
    ) -> None:
        self.total += 1
        now, name = self._clock.now_ms(), name[:MAX_NAME_CHARACTERS]
        key = (str(principal), host, operation, kind, name)
        found = self._found.get(key)
        if found is not None:
            found.count += 1
            found.last_ms = now
        elif len(self._found) < MAX_REFUSALS:
            self._found[key] = Refusal(*key, 1, now, now)
        self._log.warning_rarely(
            "request refused" if is_enforced else "request would be refused by authorization.mode=enforce",
            principal=key[0],
            host=host,
            operation=operation.name,
            resource_type=kind.name,
            resource=name,
        )
        if self._audit is not None:
            self._audit.client_event(
                "refused" if is_enforced else "would be refused",
                principal=key[0],
                host=host,
                operation=operation.name,
                resource_type=kind.name,
                resource=name,
            )

    def newest(self, limit: int) -> list[Refusal]:
        """The most recent refusals, newest first."""
        return sorted(self._found.values(), key=lambda each: each.last_ms, reverse=True)[:limit]

    def clear(self) -> None:
        self._found.clear()
