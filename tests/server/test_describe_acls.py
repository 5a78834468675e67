"""What who asks for access control lists is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ErrorCode
from support.harness import Harness, serve


@pytest.mark.parametrize("version", [1, 2, 3])
def test_that_there_are_no_access_control_lists_is_said_as_kafka_says_it(
    tmp_path: Path, version: int
) -> None:
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
