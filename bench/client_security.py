"""Security of the clients in a benchmark, which drivers in other processes get through the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_VARIABLE = "BENCH_CLIENT_SECURITY"


def client_security() -> dict[str, Any]:
    """Settings of confluent-kafka for the listeners that are measured; none without TLS."""
    settings: dict[str, Any] = json.loads(os.environ.get(_VARIABLE, "{}"))
    return settings


@contextmanager
def using(settings: dict[str, Any]) -> Iterator[None]:
    """Let clients of this process and of drivers use these settings."""
    os.environ[_VARIABLE] = json.dumps(settings)
    try:
        yield
    finally:
        del os.environ[_VARIABLE]
