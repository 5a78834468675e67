"""JSON form of pushed messages: one line each, rendered once for all streams."""

from __future__ import annotations

import msgspec

from penstock.gateway.http.responses import iso_time
from penstock.gateway.mailbox import MailboxMessage
from penstock.gateway.message_forms import show_record
from penstock.records.iteration import Record

_ENCODER = msgspec.json.Encoder()


def render_message(topic: str, partition: int, record: Record) -> bytes:
    named = {"message_id": f"{partition}-{record.offset}", "topic": topic}
    return _ENCODER.encode(named | show_record(record, partition))


def render_mail(message: MailboxMessage) -> bytes:
    return _ENCODER.encode(
        {
            "message_id": message.id,
            "from_user": message.from_user,
            "to_user": message.to_user,
            "message": message.message,
            "timestamp": iso_time(message.time_ms),
        }
    )
