"""The APIs this broker serves: one file each, gathered here."""

from __future__ import annotations

from penstock.server.dispatch import Api
from penstock.server.handlers import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    incremental_alter_configs,
    init_producer_id,
    list_config_resources,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from penstock.server.handlers.api_versions import api_versions

_HANDLERS = (
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    incremental_alter_configs,
    init_producer_id,
    list_config_resources,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)


def all_apis() -> list[Api]:
    apis = [handler.API for handler in _HANDLERS]
    return [*apis, api_versions(apis)]
