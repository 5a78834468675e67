"""DescribeAcls: an empty list."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ErrorCode
from support.harness import Harness, serve


@pytest.mark.parametrize("version", [1, 2, 3])
def test_describe_acls_returns_an_empty_list_as_kafka_does(tmp_path: Path, version: int) -> None:
    any_topic = {
        "resource_type_filter": 2,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }

    async def scenario(broker: Harness) -> None:
        response = await broker.ask(29, version, any_topic)
        assert (response.error_code, response.resources) == (ErrorCode.security_disabled, ())

    serve(tmp_path, scenario)
