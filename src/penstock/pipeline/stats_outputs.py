"""Outputs of statistics: a Delta table and a topic. Each output writes a batch only once."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import Transaction

from penstock.pipeline.causes import storage_reason
from penstock.pipeline.delta_writer import TableRefused
from penstock.pipeline.read_settings import librdkafka_settings
from penstock.pipeline.replay_writer import committed_offset
from penstock.pipeline.table_store import Store, storage_options

_RETRY_SECONDS = 60.0


def write_to_table(store: Store, query: str, rows: pa.Table, number: int) -> None:
    """Append a batch. `query` is the checkpoint location; it identifies the query, within which `number` identifies the
    batch.
    """
    application = f"penstock-stats/{_identity(query)}"
    options = storage_options(store)
    try:
        last = DeltaTable(store.uri, storage_options=options).transaction_version(application)
        if last is not None and last >= number:
            return
    except TableNotFoundError:
        if store.is_occupied():
            raise TableRefused(
                f"{store.uri} is not empty and not a Delta table: choose another location"
            ) from None
    try:
        write_deltalake(
            store.uri,
            rows,
            mode="append",
            storage_options=options,
            commit_properties=CommitProperties(app_transactions=[Transaction(application, number)]),
        )
        latest = DeltaTable(store.uri, storage_options=options).version()
        store.make_versions_durable(max(0, latest - 1), latest)
    except DeltaError as error:
        raise TableRefused(
            f"cannot write statistics to the table at {store.uri}: {storage_reason(error)}"
        ) from error


def write_to_topic(bootstrap: str, topic: str, query: str, rows: pa.Table, number: int) -> None:
    """Write a batch as JSON with the topic as key, in one transaction that also commits the batch number."""
    group = f"penstock-stats-{_identity(query)}"
    producer = Producer({**librdkafka_settings(bootstrap), "transactional.id": group})
    try:
        producer.init_transactions(_RETRY_SECONDS)
        if (committed_offset(bootstrap, group, topic) or 0) > number:
            return
        producer.begin_transaction()
        for row in rows.to_pylist():
            shown = {
                **row,
                "window_start": _time(row["window_start"]),
                "window_end": _time(row["window_end"]),
            }
            producer.produce(topic, json.dumps(shown).encode(), row["topic"].encode())
            producer.poll(0)
        consumer = Consumer({**librdkafka_settings(bootstrap), "group.id": group})
        metadata = consumer.consumer_group_metadata()
        consumer.close()
        progress = [TopicPartition(topic, 0, number + 1)]
        producer.send_offsets_to_transaction(progress, metadata, _RETRY_SECONDS)
        producer.commit_transaction(_RETRY_SECONDS)
    except KafkaException as error:
        raise TableRefused(f"cannot write statistics to {topic}: {error.args[0].str()}") from error


def _identity(query: str) -> str:
    return hashlib.sha256(query.encode()).hexdigest()[:16]


def _time(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
