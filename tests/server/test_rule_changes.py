"""Changed rules at three brokers: each change holds everywhere within a second."""

from __future__ import annotations

import asyncio
from pathlib import Path

from test_acl_handlers import as_root, create, rule, wanted

from penstock.security.acl import Principal, ResourceType
from support.eventually import eventually_async
from support.harness import Harness
from support.whole_brokers import Brokers, run

DELETE = 31
CHANGES = 20
WITHIN_S = 1.0


def test_changed_rule_holds_at_three_brokers_within_a_second(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harnesses = [await brokers.start(number) for number in (1, 2, 3)]
        for broker in harnesses:
            as_root(broker)
        alice = Principal("User", "alice")

        def allows(broker: Harness) -> bool:
            return bool(broker.context.authorization.policy.decide(alice, "h", ResourceType.TOPIC, "orders"))

        times = []
        for number in range(CHANGES):
            is_allowed = number % 2 == 0
            changed = harnesses[number % 3]
            if is_allowed:
                await create(changed, rule())
            else:
                await changed.ask(DELETE, 3, {"filters": [wanted(user="User:alice")]})
            started = asyncio.get_running_loop().time()

            def is_everywhere(is_allowed: bool = is_allowed) -> bool:
                return all(allows(broker) == is_allowed for broker in harnesses)

            await eventually_async(is_everywhere)
            times.append(asyncio.get_running_loop().time() - started)
        assert sorted(times)[len(times) // 2] < WITHIN_S, times

    run(tmp_path, scenario, authorization_mode="enforce", super_users="User:root")
