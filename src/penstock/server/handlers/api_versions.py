"""ApiVersions: which APIs in which versions, derived from the table of handlers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from penstock.errors import ErrorCode
from penstock.server.dispatch import API_VERSIONS_KEY, Api, Fields, Request

MAX_VERSION = 4


def api_versions(apis: Sequence[Api]) -> Api:
    """The API that describes `apis` and itself."""
    served = [(api.key, api.min_version, api.max_version) for api in apis]
    ranges = sorted([*served, (API_VERSIONS_KEY, 0, MAX_VERSION)])

    def handle(request: Request, message: Any) -> Fields:
        unsupported = message is None
        return {
            "error_code": ErrorCode.unsupported_version if unsupported else ErrorCode.none,
            "api_keys": [
                {"api_key": key, "min_version": low, "max_version": high}
                for key, low, high in ranges
                if not unsupported or key == API_VERSIONS_KEY
            ],
            "throttle_time": timedelta(0),
        }

    return Api(API_VERSIONS_KEY, 0, MAX_VERSION, handle)
