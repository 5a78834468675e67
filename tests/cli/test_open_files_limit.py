from __future__ import annotations

import json
import resource

import pytest

from penstock.cli.broker_process import raise_open_files_limit
from penstock.clock import SystemClock
from penstock.config import BrokerConfig
from penstock.observability.log_lines import json_line
from penstock.observability.logs import Logger

CONFIG = BrokerConfig(
    {"max.connections": "490", "gateway.max.connections": "10", "log.open.files.max": "300"}
)
NEEDED = 1_000


class Limits:
    """Limits of the process, and the requested limits."""

    def __init__(self, soft: int, hard: int, *, grants: bool = True) -> None:
        self.soft, self.hard, self.grants = soft, hard, grants

    def get(self, kind: int) -> tuple[int, int]:
        return self.soft, self.hard

    def set(self, kind: int, limits: tuple[int, int]) -> None:
        if not self.grants:
            raise ValueError("not allowed to raise maximum limit")
        self.soft, self.hard = limits


@pytest.mark.parametrize(
    ("limits", "soft", "warns"),
    [
        (Limits(256, 4_096), NEEDED, False),
        (Limits(256, resource.RLIM_INFINITY), NEEDED, False),
        (Limits(5_000, 5_000), 5_000, False),
        (Limits(256, 512), 512, True),
        (Limits(256, resource.RLIM_INFINITY, grants=False), 256, True),
    ],
)
def test_the_limit_is_raised_as_far_as_needed_and_granted(
    limits: Limits, soft: int, warns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", limits.get)
    monkeypatch.setattr(resource, "setrlimit", limits.set)
    lines: list[str] = []
    raise_open_files_limit(CONFIG, Logger(SystemClock(), lines.append, json_line))
    assert limits.soft == soft
    assert [json.loads(line)["limit"] for line in lines] == ([soft] if warns else [])
