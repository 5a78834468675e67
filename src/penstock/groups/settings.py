"""What groups are configured with, as plain numbers; the coordinator keeps it up to date while the broker runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

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
    BrokerConfig,
    GroupMigrationPolicy,
    Option,
    ServerAssignor,
)

T = TypeVar("T")


class GroupSettings:
    """One for all groups of a broker, changed in place."""

    def __init__(self, config: BrokerConfig, group_configs: Mapping[str, Mapping[str, str]]) -> None:
        self.update(config, group_configs)

    def update(self, config: BrokerConfig, group_configs: Mapping[str, Mapping[str, str]]) -> None:
        self._config = config
        self._group_configs = group_configs
        self.initial_rebalance_delay_ms: int = config[GROUP_INITIAL_REBALANCE_DELAY_MS]
        self.min_session_timeout_ms: int = config[GROUP_MIN_SESSION_TIMEOUT_MS]
        self.max_session_timeout_ms: int = config[GROUP_MAX_SESSION_TIMEOUT_MS]
        self.max_size: int = config[GROUP_MAX_SIZE]
        self.max_metadata_bytes: int = config[GROUP_MAX_METADATA_BYTES]
        self.assignors: frozenset[ServerAssignor] = config[GROUP_CONSUMER_ASSIGNORS]
        self.migration_policy: GroupMigrationPolicy = config[GROUP_CONSUMER_MIGRATION_POLICY]

    def consumer_session_timeout_ms(self, group_id: str) -> int:
        return self._of_group(CONSUMER_SESSION_TIMEOUT_MS, group_id)

    def consumer_heartbeat_interval_ms(self, group_id: str) -> int:
        return self._of_group(CONSUMER_HEARTBEAT_INTERVAL_MS, group_id)

    def _of_group(self, option: Option[T], group_id: str) -> T:
        own = self._group_configs.get(group_id, {}).get(option.name)
        if own is not None:
            return option.parse(own)
        assert option.synonym is not None, f"{option.name} is no group setting"
        return self._config[option.synonym]
