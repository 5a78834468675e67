"""Administration for asyncio: the methods of `Admin` as coroutines, each call in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack

from penstock.client.admin import Admin, AdminOptions, check_admin_names
from penstock.client.definitions import Definitions
from penstock.client.groups import Groups
from penstock.client.in_thread import in_thread
from penstock.client.pipelines import Pipelines
from penstock.client.schedules import Schedules
from penstock.client.topics import Topics
from penstock.client.webhooks import Webhooks

S = TypeVar("S")


class _Twin(Generic[S]):
    def __init__(self, subject: S) -> None:
        self.subject = subject

    async def run_in_thread(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(call, *args, **kwargs)


class AsyncTopics(_Twin[Topics]):
    create = in_thread(Topics.create)
    list = in_thread(Topics.list)
    describe = in_thread(Topics.describe)
    alter = in_thread(Topics.alter)
    add_partitions = in_thread(Topics.add_partitions)
    reduce_partitions = in_thread(Topics.reduce_partitions)
    phases = in_thread(Topics.phases)
    truncate = in_thread(Topics.truncate)
    delete = in_thread(Topics.delete)


class AsyncGroups(_Twin[Groups]):
    list = in_thread(Groups.list)
    describe = in_thread(Groups.describe)
    reset = in_thread(Groups.reset)
    delete = in_thread(Groups.delete)


class AsyncSchedules(_Twin[Schedules]):
    create = in_thread(Schedules.create)
    list = in_thread(Schedules.list)
    describe = in_thread(Schedules.describe)
    pause = in_thread(Schedules.pause)
    resume = in_thread(Schedules.resume)
    run = in_thread(Schedules.run)
    delete = in_thread(Schedules.delete)


class AsyncWebhooks(_Twin[Webhooks]):
    create = in_thread(Webhooks.create)
    list = in_thread(Webhooks.list)
    describe = in_thread(Webhooks.describe)
    alter = in_thread(Webhooks.alter)
    pause = in_thread(Webhooks.pause)
    resume = in_thread(Webhooks.resume)
    rotate_secret = in_thread(Webhooks.rotate_secret)
    test = in_thread(Webhooks.test)
    delete = in_thread(Webhooks.delete)


class AsyncPipelines(_Twin[Pipelines]):
    apply = in_thread(Pipelines.apply)
    list = in_thread(Pipelines.list)
    describe = in_thread(Pipelines.describe)
    pause = in_thread(Pipelines.pause)
    resume = in_thread(Pipelines.resume)
    run = in_thread(Pipelines.run)
    logs = in_thread(Pipelines.logs)
    delete = in_thread(Pipelines.delete)


class AsyncDefinitions(_Twin[Definitions]):
    export = in_thread(Definitions.export)
    apply = in_thread(Definitions.apply)


class AsyncAdmin:
    """Administration for asyncio; use it with `async with`."""

    topics: AsyncTopics
    groups: AsyncGroups
    schedules: AsyncSchedules
    webhooks: AsyncWebhooks
    pipelines: AsyncPipelines
    definitions: AsyncDefinitions

    def __init__(self, bootstrap: str | None = None, **options: Unpack[AdminOptions]) -> None:
        check_admin_names(options)
        self._make = partial(Admin, bootstrap, **options)

    async def __aenter__(self) -> Self:
        admin = await asyncio.to_thread(self._make)
        self.topics = AsyncTopics(admin.topics)
        self.groups = AsyncGroups(admin.groups)
        self.schedules = AsyncSchedules(admin.schedules)
        self.webhooks = AsyncWebhooks(admin.webhooks)
        self.pipelines = AsyncPipelines(admin.pipelines)
        self.definitions = AsyncDefinitions(admin.definitions)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: an AsyncAdmin holds no resources."""
