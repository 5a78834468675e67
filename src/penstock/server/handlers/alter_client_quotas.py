"""AlterClientQuotas: sets and removes quotas of users, client ids and addresses (KIP-546)."""

from __future__ import annotations

from typing import Any

from penstock.cluster.metadata_change import repeated_in
from penstock.cluster.quotas import QuotaChange
from penstock.errors import BrokerError, ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME, code_of, message_of
from penstock.server.handlers.quota_fields import entity_of
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType


async def handle(request: Request, message: Any) -> Fields:
    entries = message.entries
    try:
        request.require(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
        wanted = _changes(entries)
        valid = [each for each in wanted if isinstance(each, QuotaChange)]
        outcomes = iter(
            await request.context.acl_admin.alter_quotas(valid, validate_only=message.validate_only)
        )
        results = [each if isinstance(each, BrokerError) else next(outcomes) for each in wanted]
    except BrokerError as error:
        results = [error] * len(entries)
    return {
        "throttle_time": NO_TIME,
        "entries": [_result(entry, result) for entry, result in zip(entries, results, strict=True)],
    }


API = Api(49, 0, 1, handle)


def _changes(entries: Any) -> list[QuotaChange | BrokerError]:
    changes: list[QuotaChange | BrokerError] = []
    for entry in entries:
        try:
            changes.append(_change(entry))
        except BrokerError as error:
            changes.append(error)
    repeated = repeated_in([each.entity for each in changes if isinstance(each, QuotaChange)])
    return [
        BrokerError(ErrorCode.invalid_request, "the same entity is named twice in one request")
        if isinstance(each, QuotaChange) and each.entity in repeated
        else each
        for each in changes
    ]


def _change(entry: Any) -> QuotaChange:
    values: dict[str, float | None] = {}
    for operation in entry.ops:
        if operation.key in values:
            raise BrokerError(ErrorCode.invalid_request, f"the quota {operation.key[:80]!r} is given twice")
        values[operation.key] = None if operation.remove else operation.value
    return QuotaChange(entity_of(entry.entity), values)


def _result(entry: Any, result: BrokerError | None) -> Fields:
    entity = [{"entity_type": each.entity_type, "entity_name": each.entity_name} for each in entry.entity]
    return {"error_code": code_of(result), "error_message": message_of(result), "entity": entity}
