"""Cluster metadata of this broker: the image, which changes only by reads of the coordination store.

Changes, including this broker's own, arrive through the change list, in its order. Registrations and the
controller arrive through watches, because their nodes vanish without an entry. The writer of a change calls
`applied` to wait until the image shows the change. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import takewhile

from penstock.cluster import znodes
from penstock.cluster.coordination import Check, CoordinationStore, SessionExpired
from penstock.cluster.image import ClusterImage, ImageChange
from penstock.cluster.loading import (
    load_image,
    read_acls,
    read_broker_configs,
    read_group_configs,
    read_members,
    read_quotas,
    read_topics,
    read_users,
    reread_partitions,
)
from penstock.config import BrokerConfig
from penstock.model import BrokerId
from penstock.observability.logs import Logger

READ_AHEAD = 8
RETRY_SECONDS = 1.0


class ClusterMetadata:
    def __init__(
        self, store: CoordinationStore, node_id: BrokerId, config: BrokerConfig, log: Logger
    ) -> None:
        """`config` is the configuration at startup. `self.config` adds the dynamic configs."""
        self.image = ClusterImage("")
        self.config = config
        self.started_with = config
        self._store = store
        self._node_id = node_id
        self._log = log
        self._subscribers: list[Callable[[ImageChange], None]] = []
        self._reading = asyncio.Lock()
        self.last_applied = -1
        """Number of the last change list entry that the image contains; -1 before the first."""
        self._changed: asyncio.Future[None] | None = None
        self._woken = asyncio.Event()
        self._members_changed = False
        self._following: asyncio.Task[None] | None = None
        self._unwatch: list[Callable[[], None]] = []

    def subscribe(self, callback: Callable[[ImageChange], None]) -> None:
        """Call `callback` on the loop for every later change, in order, before the writer of the change gets
        its response.
        """
        self._subscribers.append(callback)

    async def load(self) -> ClusterImage:
        """Read the whole image, and start to follow changes."""
        self._unwatch = [
            self._store.watch(znodes.CHANGES, self._woken.set),
            self._store.watch(znodes.BROKER_IDS, self._wake_for_members),
            self._store.watch(znodes.CONTROLLER, self._wake_for_members),
        ]
        await self.reload()
        self._following = asyncio.get_running_loop().create_task(self._follow())
        return self.image

    async def close(self) -> None:
        for stop in self._unwatch:
            stop()
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])

    async def applied(self, entry: int) -> None:
        """Wait until the change with this number is in the image."""
        async with self._reading:
            while self.last_applied < entry:
                await self._apply_next()

    async def catch_up(self) -> None:
        """Apply all entries that are in the change list now."""
        async with self._reading:
            while await self._apply_next():
                pass

    async def confirm(self) -> None:
        """Apply all changes that any broker wrote before this call. The call makes a write first, so that a
        lagging server catches up.
        """
        await self._store.multi([Check(znodes.CHANGES, -1)])
        await self.catch_up()

    async def reload(self) -> None:
        """Read the whole image again. Subscribers receive the difference."""
        async with self._reading:
            await self._reload()

    async def until(self, condition: Callable[[ClusterImage], bool]) -> None:
        """Wait until the condition is true for the image."""
        while not condition(self.image):
            self._changed = self._changed or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._changed)

    async def reread_members(self) -> None:
        """Read brokers and controller now, without waiting for the watch."""
        async with self._reading:
            members = await read_members(self._store)
            self._publish(self.image.with_members(*members))

    def _wake_for_members(self) -> None:
        self._members_changed = True
        self._woken.set()

    async def _follow(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                if self._members_changed:
                    self._members_changed = False
                    await self.reread_members()
                await self.catch_up()
            except SessionExpired:
                return  # The next session has its own instance.
            except Exception as error:  # noqa: BLE001 - a loop that dies would leave an old image for good
                self._log.error_rarely("cannot read cluster metadata", error)
                self._members_changed = True
                self._woken.set()
                await asyncio.sleep(RETRY_SECONDS)

    async def _apply_next(self) -> bool:
        """Apply the next entries. Returns False if there were none.

        The change list is trimmed from its oldest entry. So while the last applied entry exists, no later
        entry is missing.
        """
        last = self.last_applied
        numbers = range(max(last, 0), last + 1 + READ_AHEAD)
        nodes = await self._store.get_many([znodes.change_path(number) for number in numbers])
        news = nodes if last < 0 else nodes[1:]
        entries = [
            znodes.decode(node.data, znodes.ChangeNode) for node in takewhile(lambda node: node, news) if node
        ]
        if entries:
            await self._apply(entries)
            self.last_applied += len(entries)
        elif nodes[0] is None and await self._store.children(znodes.CHANGES):
            await self._reload()
        return bool(entries)

    async def _apply(self, entries: Sequence[znodes.ChangeNode]) -> None:
        whole: set[str] = set()
        parts: dict[str, set[int]] = {}
        groups: set[str] = set()
        has_broker_configs = has_members = False
        for entry in entries:
            whole.update(entry.topics)
            groups.update(entry.groups)
            has_broker_configs |= bool(entry.broker_configs)
            has_members |= entry.members
            for topic, partitions in entry.partitions.items():
                parts.setdefault(topic, set()).update(partitions)
        wanted = {topic: sorted(partitions) for topic, partitions in parts.items() if topic not in whole}
        image = self.image
        found = await read_topics(self._store, sorted(whole))
        if wanted:
            found |= await reread_partitions(self._store, wanted, image.topics)
        names = whole | wanted.keys()
        gone = [name for name in names if name in image.topics and name not in found]
        changed = [topic for name, topic in found.items() if image.topics.get(name) != topic]
        # The name may belong to another topic than before, whose old id must be removed.
        replaced = [topic.name for topic in changed if _is_another(image, topic.name, topic.id)]
        if gone or replaced:
            image = image.without_topics([*gone, *replaced])
        if changed:
            image = image.with_topics(changed)
        if has_members:
            image = image.with_members(*await read_members(self._store))
        if has_broker_configs:
            for broker, configs in (await read_broker_configs(self._store)).items():
                image = image.with_configs(broker, configs)
        for group, configs in (await read_group_configs(self._store, sorted(groups))).items():
            image = image.with_group_configs(group, configs)
        image = await self._apply_security(image, entries)
        self._publish(image, frozenset(gone).union(topic.name for topic in changed))

    async def _apply_security(
        self, image: ClusterImage, entries: Sequence[znodes.ChangeNode]
    ) -> ClusterImage:
        """Read changed users, access control lists and quotas."""
        users = sorted({name for entry in entries for name in entry.users})
        acls = sorted({name for entry in entries for name in entry.acls})
        if users:
            image = image.with_users(await read_users(self._store, users))
        if acls:
            image = image.with_acls(await read_acls(self._store, acls))
        quotas = sorted({name for entry in entries for name in entry.quotas})
        if quotas:
            image = image.with_quotas(await read_quotas(self._store, quotas))
        return image

    async def _reload(self) -> None:
        names = await self._store.children(znodes.CHANGES)
        image = await load_image(self._store)
        before, after = self.image.topics, image.topics
        changed = (name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        self._publish(image, frozenset(changed))
        self.last_applied = znodes.change_number(names[-1]) if names else -1

    def _publish(self, image: ClusterImage, topics: frozenset[str] = frozenset()) -> None:
        # During a rolling restart that changes the inter-broker listener, each broker uses its own setting.
        image = image.seen_from(self.started_with.listeners.inter_broker.name)
        if image == self.image:
            return
        change = ImageChange(self.image, image, topics)
        if image.broker_configs != self.image.broker_configs:
            self.config = self.started_with.with_overrides(image.broker_overrides(self._node_id))
        self.image = image
        for callback in self._subscribers:
            callback(change)
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None


def _is_another(image: ClusterImage, name: str, topic_id: object) -> bool:
    known = image.topic(name)
    return known is not None and known.id != topic_id
