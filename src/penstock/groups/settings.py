"""Settings of groups as plain numbers; the coordinator updates them while the broker runs."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.config import (
    CONSUMER_HEARTBEAT_INTERVAL_MS,
    CONSUMER_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_ASSIGNORS,
    GROUP_CONSUMER_MIGRATION_POLICY,
    GROUP_INITIAL_REBALANCE_DELAY_MS,
    GROUP_MAX_METADATA_BYTES,
    GROUP_MAX_SESSION_TIMEOUT_MS,
    GROUP_MAX_SIZE,
    GROUP_MIN_SESSION_TIMEOUT_MS,
    GROUP_SHARE_MAX_SIZE,
    SHARE_HEARTBEAT_INTERVAL_MS,
    SHARE_SESSION_TIMEOUT_MS,
    BrokerConfig,
    GroupConfig,
    GroupMigrationPolicy,
    ServerAssignor,
)


class GroupSettings:
    """Settings of all groups of a broker. The object is updated in place."""

    def __init__(self, config: BrokerConfig, group_configs: Mapping[str, Mapping[str, str]]) -> None:
        self.update(config, group_configs)

    def update(self, config: BrokerConfig, group_configs: Mapping[str, Mapping[str, str]]) -> None:
        self._default = GroupConfig(config)
        self._own = {group_id: GroupConfig(config, values) for group_id, values in group_configs.items()}
        self.initial_rebalance_delay_ms: int = config[GROUP_INITIAL_REBALANCE_DELAY_MS]
        self.min_session_timeout_ms: int = config[GROUP_MIN_SESSION_TIMEOUT_MS]
        self.max_session_timeout_ms: int = config[GROUP_MAX_SESSION_TIMEOUT_MS]
        self.max_size: int = config[GROUP_MAX_SIZE]
        self.share_max_size: int = config[GROUP_SHARE_MAX_SIZE]
        self.max_metadata_bytes: int = config[GROUP_MAX_METADATA_BYTES]
        self.assignors: tuple[ServerAssignor, ...] = config[GROUP_CONSUMER_ASSIGNORS]
        self.migration_policy: GroupMigrationPolicy = config[GROUP_CONSUMER_MIGRATION_POLICY]

    def consumer_session_timeout_ms(self, group_id: str) -> int:
        return self._own.get(group_id, self._default)[CONSUMER_SESSION_TIMEOUT_MS]

    def consumer_heartbeat_interval_ms(self, group_id: str) -> int:
        return self._own.get(group_id, self._default)[CONSUMER_HEARTBEAT_INTERVAL_MS]

    def share_session_timeout_ms(self, group_id: str) -> int:
        return self._own.get(group_id, self._default)[SHARE_SESSION_TIMEOUT_MS]

    def share_heartbeat_interval_ms(self, group_id: str) -> int:
        return self._own.get(group_id, self._default)[SHARE_HEARTBEAT_INTERVAL_MS]
