"""Checks of a ConsumerGroupHeartbeat, and the member description that its fields give."""

from __future__ import annotations

from typing import Final

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.consumer.member import JOIN_EPOCH, NOTHING_SAID
from penstock.groups.consumer.regexes import compile_regex
from penstock.groups.group import ConsumerHeartbeat
from penstock.groups.records import ConsumerMemberValue
from penstock.groups.settings import GroupSettings

_AS_BEFORE: Final = -1


def check_heartbeat(request: ConsumerHeartbeat, settings: GroupSettings) -> None:
    """Raise BrokerError for a heartbeat that every group refuses. Called before a classic group is converted
    because of the heartbeat.
    """
    if request.server_assignor is not None and request.server_assignor not in settings.assignors:
        known = ", ".join(sorted(settings.assignors))
        message = f"server assignor {request.server_assignor} is not supported; use one of: {known}"
        raise BrokerError(ErrorCode.unsupported_assignor, message)
    if request.subscribed_regex:
        compile_regex(request.subscribed_regex)


def said_by(request: ConsumerHeartbeat, known: ConsumerMemberValue | None) -> ConsumerMemberValue:
    """Return the member's description: the known one, updated by the fields of this heartbeat."""
    base = known or NOTHING_SAID
    rebalance_timeout_ms = request.rebalance_timeout_ms
    return ConsumerMemberValue(
        instance_id=base.instance_id if request.instance_id is None else request.instance_id,
        rack_id=base.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        subscribed_topics=(
            base.subscribed_topics if request.subscribed_topics is None else request.subscribed_topics
        ),
        subscribed_regex=(
            base.subscribed_regex if request.subscribed_regex is None else request.subscribed_regex or None
        ),
        rebalance_timeout_ms=(
            base.rebalance_timeout_ms if rebalance_timeout_ms == _AS_BEFORE else rebalance_timeout_ms
        ),
        server_assignor=base.server_assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def subscription_of(value: ConsumerMemberValue) -> tuple[frozenset[str], str | None]:
    return value.subscribed_topics, value.subscribed_regex


def is_full(request: ConsumerHeartbeat) -> bool:
    """True if the heartbeat has all fields. A client sends them after an error, when it does not know the
    member's state.
    """
    return request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms != _AS_BEFORE
        and (request.subscribed_topics is not None or request.subscribed_regex is not None)
        and request.owned is not None
    )
