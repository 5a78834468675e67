"""Decisions of the cluster's access control lists: whether a user may do something, and which rule decides that."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from penstock.config import ADMIN_USER, SUPER_USERS
from penstock.config import ALLOW_EVERYONE_IF_NO_ACL_FOUND as UNRULED
from penstock.config.resources import ConfigResourceType
from penstock.internal_client.acls import AclCalls
from penstock.internal_client.configs import ConfigCalls
from penstock.internal_client.inspection import InspectionCalls
from penstock.security.acl import AclBinding, AclFilter, Operation, Principal, ResourcePattern
from penstock.security.acl_index import AclIndex
from penstock.security.acl_policy import AclPolicy


class AclDecision(NamedTuple):
    operation: Operation
    is_allowed: bool
    reason: str
    """The deciding rule, or the reason why no rule decides."""


class AclDecisions:
    def __init__(self, acls: AclCalls, configs: ConfigCalls, inspection: InspectionCalls) -> None:
        self._acls = acls
        self._configs = configs
        self._inspection = inspection

    async def decide(
        self, principal: Principal, host: str, operations: Sequence[Operation], resource: ResourcePattern
    ) -> list[AclDecision]:
        """Decide each operation on a resource for a client at an address, as brokers do."""
        rules = await self._acls.describe(AclFilter(resource.kind, resource.name, is_match=True))
        settings = await self._settings()
        policy = AclPolicy(
            _index(rules), _super_users(settings), allows_unruled=settings[UNRULED.name] == "true"
        )
        allowed = policy.decide(principal, host, resource.kind, resource.name)
        decisions = []
        for each in operations:
            rule = policy.deciding_rule(principal, host, each, resource.kind, resource.name)
            is_allowed = bool(allowed >> each & 1)
            decisions.append(AclDecision(each, is_allowed, _reason(policy, principal, rule, is_allowed)))
        return decisions

    async def _settings(self) -> dict[str, str]:
        """Settings that a decision depends on, as one of the brokers has them."""
        node_id = (await self._inspection.broker_ids())[0]
        options = [SUPER_USERS.name, ADMIN_USER.name, UNRULED.name]
        described = await self._configs.describe(ConfigResourceType.BROKER, [str(node_id)], options)
        return {entry.name: entry.value or "" for entry in described[str(node_id)]}


def _index(rules: Sequence[AclBinding]) -> AclIndex:
    index = AclIndex()
    for resource, found in groupby(rules, key=lambda rule: rule.resource):
        index.put(resource, [rule.entry for rule in found])
    return index


def _super_users(settings: dict[str, str]) -> list[str]:
    admin = settings[ADMIN_USER.name]
    return [*settings[SUPER_USERS.name].split(";"), *([f"User:{admin}"] if admin else [])]


def _reason(policy: AclPolicy, principal: Principal, rule: AclBinding | None, is_allowed: bool) -> str:
    if policy.is_super(principal):
        return f"{principal} is a super user"
    if rule is not None:
        return str(rule)
    return (
        "no rule names the resource, and allow.everyone.if.no.acl.found is true"
        if is_allowed
        else "no rule matches"
    )
