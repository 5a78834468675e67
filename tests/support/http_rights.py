"""Requests that try the rights of every HTTP endpoint. `security/test_http_matrix.py` sends them."""

from __future__ import annotations

from typing import Any

Right = tuple[str, str, str]
"""Operation, resource type and name."""

NAMES = {
    "topic": "orders",
    "group": "billing",
    "queue": "work",
    "schedule": "nightly",
    "view": "big-orders",
    "webhook": "billing-hook",
    "pipeline": "orders-to-table",
    "transactional_id": "payments",
    "broker": "1",
    "user": "alice",
    "token": "11",
    "connection": "1-1",
    "member": "m",
    "id": "0-1",
}
"""Values of path parameters."""

OTHER_NAMES: dict[str, dict[str, str]] = {
    "listDelayed": {"topic": "later"},
    "showDelayed": {"topic": "later"},
    "cancelDelayed": {"topic": "later"},
    "deleteTopic": {"topic": "old"},
}
"""Values of path parameters for single endpoints."""

QUERIES: dict[str, str] = {
    "deleteAcls": "?principal=User:stranger",
    "decideAcl": "?user=stranger&operation=READ&resource_type=TOPIC&name=x",
    "receive": "?user_id=alice",
    "read": "?partition=0&offset=0",
    **dict.fromkeys(("readTopicEvents", "streamTopic"), "?group=billing"),
    **dict.fromkeys(("receiveEvents", "receiveStream"), "?user_id=alice"),
    "history": "?series=topic:orders:records",
    "ownRights": "?resource_type=TOPIC&name=unseen",
}
"""Query of the request, by name of the endpoint."""

_RULE = {"principal": "User:stranger", "operation": "READ", "resource_type": "TOPIC", "name": "x"}
PIPELINE = {"source": {"topics": ["orders"]}, "target": {"table": "/data/t"}}
WEBHOOK = {"url": "http://127.0.0.1:9/", "queue": "work"}
BODIES: dict[str, Any] = {
    "createAcls": {"rules": [_RULE]},
    "alterQuotas": {"entity": {"user": "stranger"}, "values": {"producer_byte_rate": 1e9}},
    "createUser": {"name": "made-user", "password": "x"},
    "alterUser": {"password": "secret"},
    "createToken": {},
    "send": {"from_user": "alice", "to_user": "root", "message": "hi"},
    "receive": None,
    "receiveByPost": {"user_id": "alice"},
    "produce": {"messages": [{"value": "x"}]},
    "searchMessages": {"text": "x"},
    "createTopic": {"name": "made"},
    "alterTopic": {"partitions": 2},
    "truncateTopic": {"partitions": [{"partition": 0, "offset": 0}]},
    "alterTopicConfigs": {"retention.ms": "1000000"},
    "createView": {"name": "made-view", "of": "orders", "filter": "true"},
    "testFilter": {"of": "orders", "filter": "true"},
    "alterView": {"filter": "false"},
    "resetGroup": {"topic": "orders", "to": "earliest"},
    "createQueue": {"name": "made-queue"},
    "alterQueue": {"max_attempts": 7},
    "sendToQueue": {"messages": [{"value": "x"}]},
    "receiveFromQueue": {"max": 1},
    "settle": {"settlements": [{"receipt": "text", "action": "accept"}]},
    "redrive": {},
    "setRetryPolicy": {"dead_letter": ""},
    "createSchedule": {"name": "made-schedule", "cron": "@daily", "topic": "orders"},
    "requestFromQueue": {"value": "x", "timeout": 0.1},
    "replyToRequest": {"reply_to": "work-replies/0/some-key", "value": "x"},
    "createPipeline": {"name": "made-pipeline", **PIPELINE},
    "applyPipeline": PIPELINE,
    "createWebhook": {"name": "made-hook", **WEBHOOK},
    "rotateWebhookSecret": {},
    "alterWebhook": {"concurrency": 2},
    "alterBrokerConfigs": {"log.retention.ms": "1000000"},
    "applyDefinitions": {"format": 1, "topics": [{"name": "made", "partitions": 1}]},
}
"""Body of the request, by name of the endpoint; without one, the example of the schema."""

_READS_QUEUE = (("READ", "TOPIC", "work"),)
_DEAD, _RETRY, _REPLIES = "work-dead", "billing.retry", "work-replies"
FURTHER: dict[str, tuple[Right, ...]] = {
    "alterView": (("READ", "TOPIC", "orders"),),
    "createQueue": (("CREATE", "TOPIC", "made-queue"), ("READ", "TOPIC", "made-queue")),
    "purgeQueue": _READS_QUEUE,
    "deleteQueue": (("DELETE", "TOPIC", "work"),),
    "sendToQueue": (("WRITE", "TOPIC", "work"),),
    "receiveFromQueue": _READS_QUEUE,
    "settle": _READS_QUEUE,
    "peekQueue": _READS_QUEUE,
    "listDeadLetters": (("READ", "TOPIC", _DEAD),),
    "redrive": (("READ", "TOPIC", _DEAD), ("WRITE", "TOPIC", _DEAD), ("WRITE", "TOPIC", "work")),
    "purgeDeadLetters": (("WRITE", "TOPIC", _DEAD), ("READ", "TOPIC", _DEAD)),
    "setRetryPolicy": (("CREATE", "TOPIC", _RETRY), ("ALTER_CONFIGS", "TOPIC", _RETRY)),
    "getRetryPolicy": (("DESCRIBE_CONFIGS", "TOPIC", _RETRY),),
    "deleteRetryPolicy": (("ALTER_CONFIGS", "TOPIC", _RETRY),),
    "applyDefinitions": (("CREATE", "TOPIC", "made"),),
    "requestFromQueue": (("WRITE", "TOPIC", "work"), ("READ", "TOPIC", _REPLIES)),
    "replyToRequest": (("WRITE", "TOPIC", _REPLIES),),
    **dict.fromkeys(("createPipeline", "applyPipeline"), (("READ", "TOPIC", "orders"),)),
    "createWebhook": (("READ", "TOPIC", "work"),),
    "describeWebhook": (("DESCRIBE", "GROUP", "work"),),
    **dict.fromkeys(
        (
            "alterWebhook",
            "pauseWebhook",
            "resumeWebhook",
            "rotateWebhookSecret",
            "testWebhook",
            "deleteWebhook",
        ),
        (("READ", "GROUP", "work"),),
    ),
    "describeSchedule": (("DESCRIBE", "TOPIC", "orders"),),
    **dict.fromkeys(
        ("pauseSchedule", "resumeSchedule", "runSchedule", "deleteSchedule"), (("WRITE", "TOPIC", "orders"),)
    ),
}
"""Rights that an endpoint needs on resources that it looks up itself."""

SHOWN_TO_ALL = {
    "listTopics",
    "listGroups",
    "listTransactions",
    "listQueues",
    "listSchedules",
    "listWebhooks",
    "ownRights",
}
"""Lists that leave out what a user may not describe."""

STATUSES: dict[str, int] = {
    **dict.fromkeys(("revokeToken", "showDelayed", "abortTransaction", "removeGroupMember"), 404),
    "cancelDelayed": 409,
    "acknowledgeEvents": 400,
    "requestFromQueue": 504,  # nobody replies
    **dict.fromkeys(("streamTopic", "streamQueue", "receiveStream"), 426),
}
"""Status with all rights, where it is not a success."""
