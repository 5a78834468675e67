"""Penstock: a Kafka-compatible event log and message queue.

Client classes are imported on first use, so that a broker starts without them.
"""

from importlib import import_module

from penstock.build import check_sources

# Type checkers treat this name as true. Importing it from `typing` would cost more time than the rest of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from penstock.client.admin import Admin as Admin
    from penstock.client.async_admin import AsyncAdmin as AsyncAdmin
    from penstock.client.async_consumer import AsyncConsumer as AsyncConsumer
    from penstock.client.async_producer import AsyncProducer as AsyncProducer
    from penstock.client.async_queue import AsyncQueue as AsyncQueue
    from penstock.client.async_queue import QueueEmpty as QueueEmpty
    from penstock.client.consumer import Consumer as Consumer
    from penstock.client.errors import BrokerUnreachable as BrokerUnreachable
    from penstock.client.errors import ClientError as ClientError
    from penstock.client.errors import CorruptRecords as CorruptRecords
    from penstock.client.errors import GroupUnknown as GroupUnknown
    from penstock.client.errors import InvalidSetting as InvalidSetting
    from penstock.client.errors import MessageTooLarge as MessageTooLarge
    from penstock.client.errors import NotDelivered as NotDelivered
    from penstock.client.errors import NotDeserializable as NotDeserializable
    from penstock.client.errors import NotSerializable as NotSerializable
    from penstock.client.errors import ProducerFenced as ProducerFenced
    from penstock.client.errors import QueueUnknown as QueueUnknown
    from penstock.client.errors import TimedOut as TimedOut
    from penstock.client.errors import TopicUnknown as TopicUnknown
    from penstock.client.errors import TransactionAborted as TransactionAborted
    from penstock.client.errors import UnknownOption as UnknownOption
    from penstock.client.message import Message as Message
    from penstock.client.pipelines import PipelineUnknown as PipelineUnknown
    from penstock.client.processing import Out as Out
    from penstock.client.processing import process as process
    from penstock.client.producer import Producer as Producer
    from penstock.client.queue import Queue as Queue
    from penstock.client.queue import QueueMessage as QueueMessage
    from penstock.client.queue_session import NoReply as NoReply
    from penstock.client.queue_session import ReceiptExpired as ReceiptExpired
    from penstock.client.schedules import ScheduleUnknown as ScheduleUnknown
    from penstock.client.webhooks import WebhookUnknown as WebhookUnknown
    from penstock.model import TopicPartition as TopicPartition

__version__ = "0.1.0"

check_sources()

_MODULES = {
    "Admin": "client.admin",
    "AsyncAdmin": "client.async_admin",
    "AsyncConsumer": "client.async_consumer",
    "AsyncProducer": "client.async_producer",
    "AsyncQueue": "client.async_queue",
    "BrokerUnreachable": "client.errors",
    "ClientError": "client.errors",
    "Consumer": "client.consumer",
    "CorruptRecords": "client.errors",
    "GroupUnknown": "client.errors",
    "InvalidSetting": "client.errors",
    "Message": "client.message",
    "MessageTooLarge": "client.errors",
    "NoReply": "client.queue_session",
    "NotDelivered": "client.errors",
    "NotDeserializable": "client.errors",
    "NotSerializable": "client.errors",
    "Out": "client.processing",
    "Producer": "client.producer",
    "ProducerFenced": "client.errors",
    "Queue": "client.queue",
    "QueueEmpty": "client.async_queue",
    "QueueMessage": "client.queue",
    "QueueUnknown": "client.errors",
    "ReceiptExpired": "client.queue_session",
    "PipelineUnknown": "client.pipelines",
    "ScheduleUnknown": "client.schedules",
    "TimedOut": "client.errors",
    "TopicPartition": "model",
    "TopicUnknown": "client.errors",
    "TransactionAborted": "client.errors",
    "UnknownOption": "client.errors",
    "WebhookUnknown": "client.webhooks",
    "process": "client.processing",
}


# Hidden from type checkers, so that they still report unknown names.
if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module 'penstock' has no attribute {name!r}")
        return getattr(import_module(f"penstock.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
