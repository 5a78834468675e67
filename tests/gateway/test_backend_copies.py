"""Values that the backend returns belong to the caller: changing one changes nothing for the next caller
(T45).
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from push_stage import Stage, on_stage
from test_push_events import ORDERS, create

from penstock.config.resources import ConfigResourceType
from penstock.internal_client.records import EARLIEST
from support.whole_brokers import Brokers


def spoil(value: Any) -> None:
    """Change every mutable part of a value."""
    if isinstance(value, dict):
        for each in value.values():
            spoil(each)
        value.clear()
    elif isinstance(value, list | tuple):
        for each in value:
            spoil(each)
        if isinstance(value, list):
            value.clear()
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            spoil(getattr(value, name))
            try:
                setattr(value, name, None)
            except AttributeError:  # frozen
                continue


def test_returned_values_cannot_be_changed_for_others(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        await create(brokers)
        await stage.send(ORDERS, "1")
        await stage.backend.groups.reset("readers", {(ORDERS, 0): 1})
        backend = stage.backend
        questions = {
            "topics": backend.topics.all,
            "topic": lambda: backend.topics.get(ORDERS),
            "configs": lambda: backend.configs.get(ConfigResourceType.TOPIC, ORDERS),
            "offsets": lambda: backend.records.offsets(ORDERS, [0], EARLIEST),
            "groups": backend.groups.all,
            "group": lambda: backend.groups.describe("readers"),
            "brokers": backend.brokers.all,
            "health": backend.brokers.health,
        }
        for name, ask in questions.items():
            answer: Any = await ask()
            expected = copy.deepcopy(answer)
            spoil(answer)
            assert await ask() == expected, name

    on_stage(tmp_path, scenario)
