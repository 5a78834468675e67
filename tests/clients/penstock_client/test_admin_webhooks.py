"""`Admin().webhooks` and its async form against a real broker."""

from __future__ import annotations

import asyncio

import pytest

from penstock import Admin, AsyncAdmin, ClientError, InvalidSetting, Queue, QueueUnknown, WebhookUnknown
from support.broker_process import StartBroker
from support.eventually import eventually
from support.webhook_receivers import thread_receiver


def test_webhook_is_created_listed_tested_and_deleted(start_broker: StartBroker) -> None:
    broker = start_broker(["webhook.allow.private.addresses=true"])
    admin = Admin(broker.bootstrap)
    with thread_receiver() as receiver, Queue.create("orders", bootstrap=broker.bootstrap) as queue:
        made = admin.webhooks.create("hook", receiver.url, queue="orders", timeout_s=5, concurrency=2)
        assert made.secret is not None
        assert made.secret not in repr(made)
        queue.send("x")
        eventually(lambda: admin.webhooks.describe("hook").successes == 1)
        assert admin.webhooks.describe("hook").secret is None
        assert [each.timeout_s for each in admin.webhooks.list()] == [5.0]
        assert admin.webhooks.pause("hook").paused
        assert not admin.webhooks.resume("hook").paused
        assert admin.webhooks.test("hook").ok
        assert admin.webhooks.alter("hook", timeout_s=7).timeout_s == 7.0
        with pytest.raises(InvalidSetting, match="scheme"):
            admin.webhooks.alter("hook", url="file:///etc/passwd")
        assert admin.webhooks.rotate_secret("hook", overlap_s=60).secrets == 2
        with pytest.raises(ClientError, match="DUPLICATE_RESOURCE"):
            admin.webhooks.create("hook", receiver.url, queue="orders")
        with pytest.raises(QueueUnknown):
            admin.webhooks.create("other", receiver.url, queue="nowhere")
        with pytest.raises(InvalidSetting, match="scheme"):
            admin.webhooks.create("other", "file:///etc/passwd", queue="orders")

        async def in_loop() -> None:
            async with AsyncAdmin(broker.bootstrap) as other:
                assert [each.name for each in await other.webhooks.list()] == ["hook"]
                await other.webhooks.delete("hook")

        asyncio.run(in_loop())
    with pytest.raises(WebhookUnknown):
        admin.webhooks.describe("hook")
