"""ApiVersions: which APIs in which versions, derived from the table of handlers, and the features of the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from penstock.errors import ErrorCode
from penstock.server.dispatch import API_VERSIONS_KEY, Api, Fields, Request

MAX_VERSION = 4
FIRST_VERSION_WITH_LOWEST_0 = 4
"""Clients that ask in an older version do not know that the lowest level of a feature can be 0 (KAFKA-17011)."""
GROUP_VERSION = "group.version"
"""1: there are consumer groups (KIP-848)."""
LOWEST_LEVEL, LEVEL = 0, 1
FEATURES_EPOCH = 0


def api_versions(apis: Sequence[Api]) -> Api:
    """The API that describes `apis` and itself."""
    served = [(api.key, api.min_version, api.max_version) for api in apis]
    ranges = sorted([*served, (API_VERSIONS_KEY, 0, MAX_VERSION)])

    def handle(request: Request, message: Any) -> Fields:
        unsupported = message is None
        tells_lowest_0 = request.version >= FIRST_VERSION_WITH_LOWEST_0
        supported = {"name": GROUP_VERSION, "min_version": LOWEST_LEVEL, "max_version": LEVEL}
        finalized = {"name": GROUP_VERSION, "min_version_level": LEVEL, "max_version_level": LEVEL}
        return {
            "error_code": ErrorCode.unsupported_version if unsupported else ErrorCode.none,
            "api_keys": [
                {"api_key": key, "min_version": low, "max_version": high}
                for key, low, high in ranges
                if not unsupported or key == API_VERSIONS_KEY
            ],
            "throttle_time": timedelta(0),
            "supported_features": [supported] if tells_lowest_0 else (),
            "finalized_features_epoch": FEATURES_EPOCH,
            "finalized_features": [finalized],
            "zk_migration_ready": False,
        }

    return Api(API_VERSIONS_KEY, 0, MAX_VERSION, handle)
