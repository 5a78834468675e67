"""Schema of a document of definitions, as `PUT /v1/definitions` and `penstock apply` accept it."""

from __future__ import annotations

from typing import Any, Final

from penstock.gateway.acl_endpoints import NEW_RULE
from penstock.gateway.http.schema import Schema
from penstock.gateway.http.shared_schemas import (
    BOOLEAN,
    CONFIG_VALUES,
    GROUP_ID,
    STRING,
    TOPIC_NAME,
    USER_ID,
    an_array,
    an_object,
)
from penstock.gateway.queue_schemas import QUEUE_SETTINGS
from penstock.gateway.quota_endpoints import ENTITY, VALUES
from penstock.gateway.retry_policy_endpoints import CHOICES
from penstock.gateway.view_endpoints import FILTER
from penstock.internal_client.definitions.section import FORMAT
from penstock.internal_client.schedules import CATCH_UPS
from penstock.internal_client.webhooks import FORMATS
from penstock.security.scram import ScramMechanism

_MAX_ENTRIES: Final = 100_000
_NAME: Final = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", "maxLength": 100}
_BASE64: Final = {"type": "string", "contentEncoding": "base64"}
_TEXT: Final = {"type": "string", "minLength": 1, "maxLength": 200}
_TOPIC: Final = an_object(
    {
        "name": TOPIC_NAME,
        "partitions": {"type": "integer", "minimum": 1, "maximum": 100_000},
        "replication_factor": {"type": "integer", "minimum": 1, "maximum": 100},
        "configs": CONFIG_VALUES,
    },
    required=("name",),
)
_VIEW: Final = an_object(
    {"name": TOPIC_NAME, "of": TOPIC_NAME, "filter": FILTER, "configs": CONFIG_VALUES},
    required=("name", "of", "filter"),
)
_GROUP: Final = an_object({"name": GROUP_ID, "configs": CONFIG_VALUES})
_RETRY_POLICY: Final = an_object(
    {"group": GROUP_ID, **{name: schema for name, schema in CHOICES.items() if name != "partitions"}},
    required=("group",),
)
_QUEUE: Final = an_object(
    {
        "name": TOPIC_NAME,
        "of": {**TOPIC_NAME, "description": "Topic that the queue reads; absent for its own."},
        "filter": FILTER,
        **{name: schema for name, schema in QUEUE_SETTINGS.items() if name != "retain"},
    },
    required=("name",),
)
_SCHEDULE: Final = an_object(
    {
        "name": TOPIC_NAME,
        "cron": _TEXT,
        "timezone": {**_TEXT, "maxLength": 100},
        "topic": TOPIC_NAME,
        "key": STRING,
        "key_base64": _BASE64,
        "value": STRING,
        "value_base64": _BASE64,
        "headers": an_array(
            an_object({"name": STRING, "value": STRING, "value_base64": _BASE64}, required=("name",)),
            maxItems=100,
        ),
        "catch_up": {"type": "string", "enum": list(CATCH_UPS)},
        "paused": BOOLEAN,
    },
    required=("name", "cron", "topic"),
)
_WEBHOOK: Final = an_object(
    {
        "name": {**TOPIC_NAME, "maxLength": 200},
        "url": {"type": "string", "minLength": 1, "maxLength": 4_096},
        "queue": TOPIC_NAME,
        "topic": TOPIC_NAME,
        "filter": FILTER,
        "concurrency": {"type": "integer", "minimum": 1, "maximum": 256},
        "timeout_s": {"type": "number", "minimum": 0.01, "maximum": 300},
        "format": {"type": "string", "enum": list(FORMATS)},
        "paused": BOOLEAN,
    },
    required=("name", "url"),
)
_PIPELINE: Final = an_object(
    {
        "name": _NAME,
        "definition": {"type": "object", "additionalProperties": True},
        "paused": BOOLEAN,
    },
    required=("name", "definition"),
)
_USER: Final = an_object(
    {
        "name": USER_ID,
        "disabled": BOOLEAN,
        "mechanisms": an_array(
            {"type": "string", "enum": [str(each) for each in ScramMechanism]}, minItems=1, maxItems=2
        ),
    },
    required=("name",),
)
_ENTRIES: Final[dict[str, Schema]] = {
    "users": _USER,
    "acls": NEW_RULE,
    "quotas": an_object({"entity": ENTITY, "values": VALUES}),
    "topics": _TOPIC,
    "views": _VIEW,
    "groups": _GROUP,
    "retry_policies": _RETRY_POLICY,
    "queues": _QUEUE,
    "webhooks": _WEBHOOK,
    "schedules": _SCHEDULE,
    "pipelines": _PIPELINE,
}
DOCUMENT: Final[Schema] = an_object(
    {
        "format": {"type": "integer", "minimum": FORMAT, "maximum": FORMAT},
        "brokers": {**CONFIG_VALUES, "description": "Settings of all brokers."},
        **{name: an_array(schema, maxItems=_MAX_ENTRIES) for name, schema in _ENTRIES.items()},
    },
    required=("format",),
)


def entry_at(document: Any, pointer: str) -> str:
    """Return the name of the entry that contains the place at a JSON pointer; empty if there is none."""
    parts = pointer.split("/")[1:3]
    try:
        entry = document[parts[0]][int(parts[1])]
        return str(entry.get("name") or entry.get("group") or "")
    except (LookupError, ValueError, TypeError, AttributeError):
        return ""
