"""Topics of which some logs cannot be created: the other partitions follow every change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.config import Durability
from penstock.errors import StorageError
from penstock.storage.log_manager import LogManager
from support.eventually import eventually_async
from support.harness import Harness, serve

CREATE_PARTITIONS, INCREMENTAL_ALTER_CONFIGS = 37, 44
TOPIC = 2


def test_settings_reach_partitions_beside_one_that_cannot_be_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise StorageError("no space")

    async def scenario(broker: Harness) -> None:
        await broker.create("orders", durability="os")
        replica = broker.context.replicas.get("orders", 0)
        monkeypatch.setattr(LogManager, "create", refuse)
        grown = {"topics": [{"name": "orders", "count": 2, "assignments": None}]}
        await broker.ask(CREATE_PARTITIONS, 3, {**grown, "timeout": 5_000, "validate_only": False})
        configs = [{"name": "durability", "config_operation": 0, "value": "fsync"}]
        resource = {"resource_type": TOPIC, "resource_name": "orders", "configs": configs}
        changed = {"resources": [resource], "validate_only": False}
        answer = await broker.ask(INCREMENTAL_ALTER_CONFIGS, 1, changed)
        assert answer.responses[0].error_code == 0
        await eventually_async(lambda: replica.partition.durability is Durability.FSYNC)

    serve(tmp_path, scenario)
