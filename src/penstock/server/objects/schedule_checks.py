"""Checks of a new schedule: its name, its definition, and that its topic would accept its messages."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from penstock.config import TopicConfig
from penstock.delay.checking import check_delays
from penstock.errors import BrokerError, ErrorCode
from penstock.replication.admission import check_produced
from penstock.schedules.message import OWN_HEADERS, firing_batch
from penstock.schedules.schedule import Intent, ScheduleDefinition
from penstock.server.context import BrokerContext
from penstock.server.objects.served import Arguments
from penstock.storage.log_config import LogConfig

MAX_MESSAGE_BYTES: Final = 1_000_000
MAX_HEADERS: Final = 100
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_ANY_INTENT: Final = Intent(0, "", 0, 0, 0, 0, 0)


def check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None or name in (".", ".."):
        raise BrokerError(
            ErrorCode.invalid_request,
            f"{name[:80]!r} cannot be the name of a schedule: use up to 249 letters, digits, '.', '_' and '-'",
        )


def read_definition(arguments: Arguments) -> ScheduleDefinition:
    """Definition in the arguments of a request. Raises BrokerError if a field is missing or wrong."""
    try:
        return msgspec.convert(arguments.get("definition"), ScheduleDefinition)
    except msgspec.ValidationError as error:
        raise BrokerError(ErrorCode.invalid_request, f"invalid definition of a schedule: {error}") from None


def check_definition(context: BrokerContext, name: str, definition: ScheduleDefinition) -> None:
    """Raise BrokerError if the topic does not exist or would refuse the messages."""
    topic = context.objects.schedule_topics.topic(definition.topic)
    if definition.size_bytes > MAX_MESSAGE_BYTES or len(definition.headers) > MAX_HEADERS:
        raise BrokerError(
            ErrorCode.message_too_large,
            f"the message has {definition.size_bytes} bytes and {len(definition.headers)} headers; a schedule takes "
            f"up to {MAX_MESSAGE_BYTES} bytes and {MAX_HEADERS} headers",
        )
    for own in OWN_HEADERS & {each for each, _ in definition.headers}:
        raise BrokerError(ErrorCode.invalid_request, f"the header {own} is set by the schedule; leave it out")
    config = LogConfig.resolve(TopicConfig(context.config, topic.configs), context.config)
    if config.requires_keys and definition.key is None:
        raise BrokerError(
            ErrorCode.invalid_record, f"the topic {topic.name} is compacted: give the messages a key"
        )
    now_ms = context.clock.now_ms()
    batch = memoryview(firing_batch(name, definition, _ANY_INTENT, now_ms))
    header = check_produced(batch, config.max_message_bytes)
    if config.delay_rules is not None:
        check_delays(batch, header, config.delay_rules, now_ms)
