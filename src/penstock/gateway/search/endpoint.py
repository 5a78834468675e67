"""The endpoint that searches the messages of a topic."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.responses import Response

from penstock.errors import ConfigError
from penstock.gateway.authorization import on_topic
from penstock.gateway.http.endpoint import JSON, Call, DeclaredResponse, Endpoint, path
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.shared_schemas import LONG_MAX, PARTITION, TOPIC_NAME, an_object
from penstock.gateway.push.sse import CONTENT_TYPE, EventStream
from penstock.gateway.search.matcher import Matcher, WrongQuery
from penstock.gateway.search.partition_search import PartitionSearch
from penstock.gateway.search.search_rounds import SearchRounds, open_partitions
from penstock.gateway.search.topic_search import TopicSearch
from penstock.gateway.view_endpoints import FILTER

_TEXT = {"type": "string", "minLength": 1, "maxLength": 1_000}
_TIME = {"type": "integer", "minimum": 0, "maximum": LONG_MAX}
_QUERY = an_object(
    {
        "text": {**_TEXT, "description": "Text in the value, the key or a header's value, in any case."},
        "regex": {**_TEXT, "description": "Regular expression of RE2 that the value matches."},
        "key": {**_TEXT, "description": "The key, exactly."},
        "header": {**_TEXT, "description": "Name of a header that the message has."},
        "header_value": {**_TEXT, "description": "With `header`: text in its value."},
        "json_path": {**_TEXT, "description": "Path to a value in a JSON message, as $.user.id."},
        "json_value": {**_TEXT, "description": "With `json_path`: the value there, exactly."},
        "filter": {**FILTER, "description": "CEL expression that is true, as in the filter of a view."},
        "from_ms": {**_TIME, "description": "Only messages at or after this time."},
        "to_ms": {**_TIME, "description": "Only messages at or before this time."},
        "partition": {**PARTITION, "description": "Only this partition."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 1_000, "description": "Matches at most: 100."},
        "max_bytes": {
            "type": "integer",
            "minimum": 1,
            "maximum": 2**40,
            "description": "Budget of bytes to read: 1 GiB.",
        },
        "max_seconds": {
            "type": "integer",
            "minimum": 1,
            "maximum": 600,
            "description": "Budget of seconds: 60.",
        },
    },
    required=(),
)


async def search_messages(call: Call) -> Response:
    query = call.body
    if "header_value" in query and "header" not in query:
        raise Problem(400, "header_value needs header", error="INVALID_REQUEST")
    if "json_value" in query and "json_path" not in query:
        raise Problem(400, "json_value needs json_path", error="INVALID_REQUEST")
    try:
        matcher = Matcher(query)
    except WrongQuery as error:
        raise Problem(400, str(error), error="INVALID_REQUEST") from None
    slots, client = call.context.searches, call.client
    slots.enter(client)
    try:
        partitions = await _partitions(call, query)
        rounds = SearchRounds(call.context.backend.records, call.context.clock, matcher, partitions, query)
        return EventStream(
            TopicSearch(rounds, call.context.clock, partial(slots.leave, client)), call.request_id
        )
    except BaseException:
        slots.leave(client)
        raise


async def _partitions(call: Call, query: dict[str, Any]) -> list[PartitionSearch]:
    name, backend = call.parameters["topic"], call.context.backend
    count = len((await backend.topics.get(name, fresh=True)).partitions)
    numbers = range(count)
    if "partition" in query:
        if query["partition"] >= count:
            raise Problem(404, f"{name} has {count} partitions", error="UNKNOWN_TOPIC_OR_PARTITION")
        numbers = range(query["partition"], query["partition"] + 1)
    try:
        return await open_partitions(backend.records, name, numbers, query)
    except ConfigError as error:
        raise Problem(400, f"filter: {error}", error="INVALID_REQUEST", pointer="/filter") from None


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/topics/{topic}/search",
        "searchMessages",
        "Messages",
        "Search the messages of a topic, the newest first. Matches, progress and the end are server-sent events; the "
        "search ends when the client disconnects.",
        search_messages,
        {200: DeclaredResponse("Events of type match, progress and end.", content_type=CONTENT_TYPE)},
        parameters=(path("topic", TOPIC_NAME, "The topic."),),
        bodies={JSON: _QUERY},
        is_stream=True,
        needs=(on_topic("READ"),),
    ),
)
