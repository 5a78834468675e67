"""Declarations of the WebSockets of queues and mailboxes: parameters, messages of both sides, permissions."""

from __future__ import annotations

from starlette.responses import Response

from penstock.gateway.authorization import RequiredPermission
from penstock.gateway.http.endpoint import Call, DeclaredResponse, Endpoint, query
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.shared_schemas import PROBLEM, STRING, TIME, USER_ID, an_array, an_object
from penstock.gateway.mailbox_layouts import TOPIC as MAILBOX
from penstock.gateway.push.held_messages import MAX_CREDIT as MAX_HELD
from penstock.gateway.push.position import MAX_LENGTH
from penstock.gateway.push.websocket import MAX_CREDIT
from penstock.gateway.queue_endpoints import LOCK, QUEUE, on_queue
from penstock.gateway.queue_message_endpoints import RECEIVED, RESULT, SETTLEMENTS

TAG = "Push"
CLOSE_CODES = (
    "The connection is a WebSocket. A connection that the gateway closes has code 1001 (the gateway stops), 1008 (too "
    "many control frames, or the login has ended), 1011 (an internal error), 1013 (the gateway has the maximum number "
    "of connections; connect again later) or 4000 + the status of a problem."
)
_ENDS = {
    "error": {
        **PROBLEM,
        "description": "The only field of its message; the gateway then closes the connection.",
    }
}


def credit(limit: int, doc: str) -> dict[str, object]:
    return {"type": "integer", "minimum": 1, "maximum": limit, "description": doc}


async def _refuse_queue(call: Call) -> Response:
    raise upgrade_required(
        f"receive messages with POST /v1/queues/{call.parameters['queue']}/receive instead"
    )


async def _refuse_mailbox(call: Call) -> Response:
    raise upgrade_required("read the same messages as server-sent events at /receive/events")


def upgrade_required(instead: str) -> Problem:
    """Return the problem (426) for a GET without an upgrade. `instead` is the advice in its text."""
    return Problem(
        426,
        f"this path is a WebSocket: connect with ws://, or {instead}",
        error="INVALID_REQUEST",
        headers={"upgrade": "websocket"},
    )


QUEUE_CLIENT_MESSAGE = an_object(
    {
        "credit": credit(
            MAX_HELD,
            "How many more messages the client holds unsettled. Credit adds up, to 1,000 at most; a settled message "
            "gives its credit back.",
        ),
        "settlements": {
            **SETTLEMENTS,
            "description": "Settles messages of this socket; receipts of others are refused.",
        },
    },
    required=(),
)
QUEUE_SOCKET = Endpoint(
    "GET",
    "/v1/queues/{queue}/stream",
    "streamQueue",
    TAG,
    "Messages of a queue over a WebSocket. The gateway sends messages while the client has credit, and the client "
    "settles them by receipt on the same socket. Messages that are not settled return to the queue when the "
    "connection ends.",
    _refuse_queue,
    {101: DeclaredResponse(CLOSE_CODES)},
    (QUEUE, query("lock_s", LOCK, "Lock time of the messages in seconds; that of the queue unless given.")),
    socket_messages={
        "client": QUEUE_CLIENT_MESSAGE,
        "gateway": an_object(
            {**RECEIVED["properties"], "results": an_array(RESULT), **_ENDS},
            required=(),
        ),
    },
    needs=(on_queue("READ"),),
)

MAIL_NEEDS = (RequiredPermission("WRITE", "TOPIC", MAILBOX, owner="from_user"),)
"""Permission to send over the socket of a mailbox, the same as for POST /send."""
MAILBOX_CLIENT_MESSAGE = an_object(
    {
        "credit": credit(
            MAX_CREDIT, "How many more messages the client takes. Credit adds up, and each message uses one."
        ),
        "send": an_object(
            {
                "id": {
                    "type": "string",
                    "maxLength": 100,
                    "description": "Chosen by the client; the outcome has it too.",
                },
                "from_user": {**USER_ID, "description": "The user of the stream unless given."},
                "to_user": USER_ID,
                "message": STRING,
            },
            required=("to_user", "message"),
        ),
    },
    required=(),
)
MAILBOX_SOCKET = Endpoint(
    "GET",
    "/receive/stream",
    "receiveStream",
    TAG,
    "A user's messages over a WebSocket, as many as the client has given credit for. The client may send messages over "
    "the same socket.",
    _refuse_mailbox,
    {101: DeclaredResponse(CLOSE_CODES)},
    (
        query("user_id", USER_ID, "User whose messages are read.", required=True),
        query(
            "last_message_id",
            {"type": "string", "minLength": 1, "maxLength": MAX_LENGTH},
            "The id of the last message seen; without it from the oldest stored message on.",
        ),
    ),
    socket_messages={
        "client": MAILBOX_CLIENT_MESSAGE,
        "gateway": an_object(
            {
                "id": STRING,
                "message_id": STRING,
                "from_user": STRING,
                "to_user": STRING,
                "message": STRING,
                "timestamp": TIME,
                "sent": an_object(
                    {
                        "id": {"type": ["string", "null"]},
                        "status": {"type": "string", "enum": ["success", "error"]},
                        "message_id": STRING,
                        "error": PROBLEM,
                    },
                    required=("id", "status"),
                ),
                **_ENDS,
            },
            required=(),
        ),
    },
    needs=(RequiredPermission("READ", "TOPIC", MAILBOX, owner="user_id"),),
)
SOCKET_ENDPOINTS = (QUEUE_SOCKET, MAILBOX_SOCKET)
