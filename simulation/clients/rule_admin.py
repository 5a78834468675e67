"""A simulated administrator of rights: adds and removes rules that share a resource, and reads them at every broker."""

from __future__ import annotations

from itertools import product

from penstock.errors import ErrorCode
from penstock.security.acl import Operation, PatternType, Permission, Principal, ResourceType
from simulation.clients.client import SimulatedClient, check_error
from simulation.models.rule_model import Rule, RuleModel
from simulation.scenarios.broker_host import BrokerHost
from simulation.scenarios.stage import Stage

RESOURCES = 2
RULES = 6
_ANY = 1
_UNCLEAR = (ErrorCode.request_timed_out, ErrorCode.not_controller, ErrorCode.kafka_storage_error)
HOST = "10.0.0.1"


class RuleAdmin:
    name = "rule-admin"

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._random = stage.world.random(self.name)
        self._routing = stage.routing(self.name)
        self._unused = iter(
            Rule(f"resource-{resource}", f"user-{user}")
            for user, resource in product(range(1_000), range(RESOURCES))
        )
        self._rules: list[RuleModel] = []
        self._retired: list[RuleModel] = []

    async def step(self) -> None:
        while len(self._rules) < RULES:
            self._rules.append(RuleModel(next(self._unused)))
        chosen = self._random.choice(self._rules)
        for member in self._stage.members:
            # Brokers remember the decision from now on.
            self._permits(member, chosen.rule)
        try:
            await self._change(chosen, is_present=self._random.random() < 0.6)
        finally:
            if not chosen.is_certain:
                self._rules.remove(chosen)
                self._retired.append(chosen)

    async def _change(self, chosen: RuleModel, *, is_present: bool) -> None:
        broker = await self._routing.any_broker()
        connection = broker.connections
        chosen.begin(is_present)
        if is_present:
            response = await broker.ask("CreateAcls", (3,), {"creations": [_creation(chosen.rule)]})
            code = response.results[0].error_code
        else:
            response = await broker.ask("DeleteAcls", (3,), {"filters": [_filter(chosen.rule)]})
            code = response.filter_results[0].error_code
        self._stage.note(self.name, "change", chosen.rule, is_present, ErrorCode(code).name)
        if code in _UNCLEAR:
            return  # the change may be made or not
        check_error(code)
        chosen.acknowledge(is_present)
        shown = await _describe(broker)
        if broker.connections == connection:
            # The broker that has acknowledged a change shows it.
            chosen.check(chosen.rule in shown, broker.name)

    async def audit(self) -> None:
        """Check in peace that all brokers show and apply the rules that were acknowledged."""
        for member in self._stage.members:
            shown = await _describe(await self._routing.broker(member.node_id))
            for each in (*self._rules, *self._retired):
                each.check(each.rule in shown, member.host.name)
                each.check_applied(self._permits(member, each.rule), each.rule in shown, member.host.name)

    @staticmethod
    def _permits(member: BrokerHost, rule: Rule) -> bool | None:
        principal = Principal("User", rule.user)
        return member.permits(principal, HOST, Operation.READ, ResourceType.TOPIC, rule.resource)


def _creation(rule: Rule) -> dict[str, object]:
    return {
        "resource_type": int(ResourceType.TOPIC),
        "resource_name": rule.resource,
        "resource_pattern_type": int(PatternType.LITERAL),
        "principal": f"User:{rule.user}",
        "host": "*",
        "operation": int(Operation.READ),
        "permission_type": int(Permission.ALLOW),
    }


def _filter(rule: Rule | None) -> dict[str, object]:
    return {
        "resource_type_filter": int(ResourceType.TOPIC),
        "resource_name_filter": None if rule is None else rule.resource,
        "pattern_type_filter": int(PatternType.LITERAL),
        "principal_filter": None if rule is None else f"User:{rule.user}",
        "host_filter": None,
        "operation": _ANY,
        "permission_type": _ANY,
    }


async def _describe(broker: SimulatedClient) -> set[Rule]:
    response = await broker.ask("DescribeAcls", (3,), _filter(None))
    check_error(response.error_code)
    return {
        Rule(resource.resource_name, acl.principal.removeprefix("User:"))
        for resource in response.resources
        for acl in resource.acls
    }
