"""InitProducerId: producer id and epoch for an idempotent or transactional producer.

A producer without a transactional id always gets a new producer id with epoch 0, even if it requests a higher epoch for
its old one. A producer with a transactional id fences all earlier producers with the same transactional id.
"""

from __future__ import annotations

from penstock.config import TRANSACTION_MAX_TIMEOUT_MS
from penstock.errors import BrokerError, ErrorCode
from penstock.model import ProducerEpoch, ProducerId
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME
from penstock.server.handlers.transaction_requests import told
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType
from penstock.transactions.transaction import NO_EPOCH, NOBODY, Identity
from penstock.wire.init_producer_id import InitProducerIdRequest, decode_init_producer_id

FIRST_VERSION_WITH_FENCED = 4


async def handle(request: Request, message: InitProducerIdRequest) -> Fields:
    producer, code = NOBODY, ErrorCode.none
    try:
        producer = await _producer(request, message)
    except BrokerError as error:
        code = told(error.code, request.version, FIRST_VERSION_WITH_FENCED)
    return {
        "throttle_time": NO_TIME,
        "error_code": code,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }


API = Api(22, 0, 5, handle, decode=decode_init_producer_id)


async def _producer(request: Request, message: InitProducerIdRequest) -> Identity:
    asking = Identity(ProducerId(message.producer_id), ProducerEpoch(message.producer_epoch))
    if (asking.producer_id == NOBODY.producer_id) != (asking.epoch == NO_EPOCH):
        raise BrokerError(ErrorCode.invalid_request, "producer id and producer epoch must be given together")
    if message.transactional_id is None:
        _require_idempotent_write(request)
        return Identity(await request.context.producer_ids.next(), ProducerEpoch(0))
    request.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, message.transactional_id)
    if not message.transactional_id:
        raise BrokerError(ErrorCode.invalid_request, "the transactional id must not be empty")
    if not 0 < message.transaction_timeout_ms <= request.context.config[TRANSACTION_MAX_TIMEOUT_MS]:
        raise BrokerError(ErrorCode.invalid_transaction_timeout)
    shard = request.context.transactions.shard_of(message.transactional_id)
    return await shard.init_producer_id(
        message.transactional_id,
        asking,
        message.transaction_timeout_ms,
        message.is_held,
    )


def _require_idempotent_write(request: Request) -> None:
    """Require IDEMPOTENT_WRITE on the cluster, or WRITE on at least one topic (KIP-679)."""
    caller = request.caller
    if request.context.authorizer.has_right_on_any(
        caller.principal, caller.host, Operation.WRITE, ResourceType.TOPIC
    ):
        return
    request.require(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
