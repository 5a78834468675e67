"""ApiVersions: APIs with their version ranges, derived from the table of handlers, and the features of the
cluster.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from penstock.errors import ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.wire.apis import API_VERSIONS

MAX_VERSION = 4
FIRST_VERSION_WITH_LOWEST_0 = 4
"""First version whose clients accept 0 as the lowest level of a feature (KAFKA-17011)."""
FIRST_VERSION_WITH_NAMES = 3
MAX_SOFTWARE_CHARACTERS = 100
FEATURES = {
    "group.version": 1,
    "share.version": 1,
    "transaction.version": 2,
}
"""Level of each feature: consumer groups (KIP-848), share groups (KIP-932), and a new producer epoch for each
transaction (KIP-890).
"""
LOWEST_LEVEL = 0
FEATURES_EPOCH = 0

_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_EMPTY: Fields = {
    "api_keys": (),
    "throttle_time": timedelta(0),
    "supported_features": (),
    "finalized_features_epoch": FEATURES_EPOCH,
    "finalized_features": (),
    "zk_migration_ready": False,
}


def api_versions(apis: Sequence[Api]) -> Api:
    """Return the ApiVersions API, which describes `apis` and itself."""
    served = [(api.key, api.min_version, api.max_version) for api in apis]
    ranges = sorted([*served, (API_VERSIONS, 0, MAX_VERSION)])

    def handle(request: Request, message: Any) -> Fields:
        unsupported = message is None
        if request.version >= FIRST_VERSION_WITH_NAMES and not _is_named_well(message):
            return {**_EMPTY, "error_code": ErrorCode.invalid_request}
        if request.version >= FIRST_VERSION_WITH_NAMES:
            software = f"{message.client_software_name} {message.client_software_version}"
            request.session.software = software[:MAX_SOFTWARE_CHARACTERS]
        tells_lowest_0 = request.version >= FIRST_VERSION_WITH_LOWEST_0
        return {
            "error_code": ErrorCode.unsupported_version if unsupported else ErrorCode.none,
            "api_keys": [
                {"api_key": key, "min_version": low, "max_version": high}
                for key, low, high in ranges
                if not unsupported or key == API_VERSIONS
            ],
            "throttle_time": timedelta(0),
            "supported_features": [
                {"name": name, "min_version": LOWEST_LEVEL, "max_version": level}
                for name, level in FEATURES.items()
                if tells_lowest_0
            ],
            "finalized_features_epoch": FEATURES_EPOCH,
            "finalized_features": [
                {"name": name, "min_version_level": level, "max_version_level": level}
                for name, level in FEATURES.items()
            ],
            "zk_migration_ready": False,
        }

    return Api(API_VERSIONS, 0, MAX_VERSION, handle)


def _is_named_well(message: Any) -> bool:
    """True if name and version of the client software have only characters that KIP-511 allows, so that they are safe
    in logs.
    """
    return all(
        _NAME.fullmatch(name) for name in (message.client_software_name, message.client_software_version)
    )
