"""Schemas and JSON forms of queues over HTTP: settings, summaries and descriptions."""

from __future__ import annotations

from typing import Any

from penstock.config import MaxLengthPolicy
from penstock.gateway.http.shared_schemas import (
    BOOLEAN,
    INTEGER,
    LONG_MAX,
    NUMBER,
    STRING,
    an_array,
    an_object,
    nullable,
)
from penstock.internal_client.queues import QueueDetails, QueuePartition, QueueSummary

LOCK = {"type": "number", "minimum": 0.001, "maximum": 43_200}
_ATTEMPTS = {"type": "integer", "minimum": 2, "maximum": 100}
_BACK_OFF = {
    "type": "string",
    "maxLength": 2_000,
    "description": "Delays such as `1s,10s,1m`, or `exponential:1s:10m`; empty for none.",
}
_RETAIN = {
    "type": "string",
    "maxLength": 100,
    "description": "`acknowledged` keeps messages until all queues and groups have settled them; or a time: `2w`.",
}
QUEUE_SETTINGS: dict[str, dict[str, Any]] = {
    "retain": _RETAIN,
    "lock_s": {**LOCK, "description": "Time for which a received message is locked."},
    "max_attempts": {**_ATTEMPTS, "description": "Number of deliveries of a message."},
    "back_off": _BACK_OFF,
    "dead_letter": {
        "type": "string",
        "maxLength": 249,
        "pattern": "^[a-zA-Z0-9._-]*$",
        "description": "Topic of dead letters, which is created unless it exists; empty for none.",
    },
    "order": {
        "type": "string",
        "enum": ["key", "none"],
        "description": "`key`: a message is delivered only when all earlier ones of its key are settled. Or `none`.",
    },
    "priorities": {
        "type": "boolean",
        "description": "Whether messages of a higher priority are delivered first.",
    },
    "max_length": {
        "type": "integer",
        "minimum": 0,
        "maximum": LONG_MAX,
        "description": "Maximum number of messages that are not settled. 0 for no limit.",
    },
    "max_length_policy": {
        "type": "string",
        "enum": [each.value for each in MaxLengthPolicy],
        "description": "Beyond `max_length`, `refuse` new messages, or send the oldest ones to the dead letters.",
    },
    "priority_share": {
        "type": "number",
        "minimum": 0,
        "maximum": 0.5,
        "description": "Share of deliveries that is reserved for messages of lower priorities.",
    },
}
QUEUE_PART = {
    "filter": {
        "type": "string",
        "maxLength": 4_096,
        "pattern": "\\S",
        "description": "CEL expression that selects messages of the existing topic, as in the filter of a view.",
    },
    "route": {
        "type": "string",
        "maxLength": 1_000,
        "pattern": "\\S",
        "description": "Messages whose header `penstock-route` matches: `*` is a word, `#` any number of words.",
    },
}
_SUMMARY_FIELDS = {
    "name": STRING,
    "topic": {**STRING, "description": "The topic that share consumers of the queue subscribe to."},
    "of": {**STRING, "description": "The topic of which `topic` is a view; empty without a filter."},
    "filter": STRING,
    "lock_s": NUMBER,
    "max_attempts": INTEGER,
    "back_off": STRING,
    "dead_letter": STRING,
    "order": STRING,
    "priorities": BOOLEAN,
    "priority_share": NUMBER,
    "max_length": INTEGER,
    "max_length_policy": STRING,
}
QUEUE_SUMMARY = an_object(_SUMMARY_FIELDS)
_WORK_FIELDS = {
    "archiving": {**INTEGER, "description": "Messages that wait for their dead letter."},
    "redelivered": {
        **INTEGER,
        "description": "Redeliveries since the leaders of the partitions have loaded their states.",
    },
    "dead_letters": {
        "type": "object",
        "additionalProperties": INTEGER,
        "description": "Dead letters by reason, since the leaders of the partitions have loaded their states.",
    },
}
_PARTITION_STATE = an_object(
    {
        "partition": INTEGER,
        "start_offset": nullable(INTEGER),
        "depth": {**nullable(INTEGER), "description": "Messages that are not settled."},
        "in_flight": INTEGER,
        "released": {
            **INTEGER,
            "description": "Messages that wait for their next delivery and may be taken.",
        },
        "delayed": {**INTEGER, "description": "Messages that wait for the time of their next delivery."},
        **_WORK_FIELDS,
    }
)
QUEUE_DESCRIPTION = an_object(
    {
        **_SUMMARY_FIELDS,
        "depth": {**INTEGER, "description": "Messages that are not settled."},
        "depth_is_upper_bound": {
            **BOOLEAN,
            "description": "Whether `depth` may count messages that do not match: a view was not read up to them yet.",
        },
        "in_flight": INTEGER,
        "delayed": INTEGER,
        **_WORK_FIELDS,
        "retain": {
            **STRING,
            "description": "`acknowledged`, a time such as `2w`, or `forever`: what its topic keeps.",
        },
        "kept_by": {
            "type": "object",
            "additionalProperties": STRING,
            "description": "By partition, the groups that deletion waits for in a topic with `retention.acknowledged`.",
        },
        "oldest_age_ms": {
            **nullable(INTEGER),
            "description": "Age of the oldest message that is not settled.",
        },
        "partitions": an_array(_PARTITION_STATE),
    }
)


def show_queue(queue: QueueSummary) -> dict[str, Any]:
    return {
        "name": queue.name,
        "topic": queue.topic,
        "lock_s": queue.lock_ms / 1000,
        "max_attempts": queue.max_attempts,
        "back_off": queue.back_off,
        "dead_letter": queue.dead_letter,
        "order": queue.order,
        "priorities": queue.priorities,
        "priority_share": queue.priority_share,
        "max_length": queue.max_length,
        "max_length_policy": queue.max_length_policy,
        "of": queue.of,
        "filter": queue.filter,
    }


def _show_work(state: QueueDetails | QueuePartition) -> dict[str, Any]:
    return {
        "archiving": state.archiving,
        "redelivered": state.redelivered,
        "dead_letters": dict(state.dead_letters),
    }


def show_details(details: QueueDetails) -> dict[str, Any]:
    return {
        **show_queue(details.summary),
        "depth": details.depth,
        "depth_is_upper_bound": details.depth_is_upper_bound,
        "in_flight": details.in_flight,
        "delayed": details.delayed,
        **_show_work(details),
        "retain": details.retain,
        "kept_by": {str(partition): reason for partition, reason in details.kept_by.items()},
        "partitions": [
            {
                "partition": each.partition,
                "start_offset": each.start_offset,
                "depth": each.depth,
                "in_flight": each.in_flight,
                "released": each.waiting,
                "delayed": each.delayed,
                **_show_work(each),
            }
            for each in details.partitions
        ],
    }
