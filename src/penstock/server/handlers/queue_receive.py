"""QueueReceive: the gateway and the Python client receive messages of a queue. A private API, which ApiVersions does
not list.
"""

from __future__ import annotations

from penstock.errors import BrokerError
from penstock.net.response import Answer
from penstock.server.dispatch import Api, Request
from penstock.server.queue_receiving import QueueReceiving
from penstock.server.security import Operation, ResourceType
from penstock.wire.apis import QUEUE_RECEIVE
from penstock.wire.queue_receive import (
    QueueReceiveResponse,
    decode_queue_receive_request,
    encode_queue_receive_response,
)


def handle(request: Request, frame: memoryview, position: int) -> Answer:
    asked = decode_queue_receive_request(frame, position)
    try:
        request.require(Operation.READ, ResourceType.GROUP, asked.group_id)
        return QueueReceiving(request, asked).start()
    except BrokerError as error:
        response = QueueReceiveResponse(error.code, str(error)[:500])
        return encode_queue_receive_response(request.header.correlation_id, response)


API = Api(QUEUE_RECEIVE, 0, 0, handle_raw=handle)
