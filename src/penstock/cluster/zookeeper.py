"""Coordination store of a cluster: one ZooKeeper session through kazoo.

Only this module imports kazoo, and kazoo's threads only post to the loop. A store is one session: after it
has expired, every call raises SessionExpired, and the owner creates another store. ZooKeeper serves the
requests of a session in order, so a read sees all earlier writes. After a lost connection, reads follow a
`sync`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient, TransactionRequest
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.handlers.utils import AsyncResult
from kazoo.protocol.states import EventType, KazooState, WatchedEvent, ZnodeStat
from kazoo.security import ACL, make_acl, make_digest_acl

from penstock.cluster.coordination import (
    BadVersion,
    Check,
    Create,
    Delete,
    EphemeralParent,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionExpired,
    SessionState,
    Set,
    SingleWrites,
    StoreError,
    StoreUnreachable,
)
from penstock.cluster.tree import ROOT, check_path, parent_of
from penstock.cluster.watches import Watches
from penstock.cluster.zookeeper_security import ZooKeeperSecurity
from penstock.errors import ConfigError, PenstockError, StorageError, UnknownOutcome
from penstock.threads import Threads

CHUNK = 100
MAX_SINGLE_REQUESTS = 100
"""Maximum number of concurrent requests. kazoo wakes its thread with a byte in a socket pair for each
request; a few hundred unread bytes would block the loop.
"""

MAX_MULTI_BYTES = 1_000_000
"""ZooKeeper closes a connection that sends more than 1 MiB (jute.maxbuffer), without an explanation."""

OPERATION_BYTES = 100
"""Estimated size of an operation on the wire besides its path and data: headers, version, ACL."""

CONNECTION_ATTEMPTS = 3
"""Connection attempts within the session timeout. A server that accepts connections but does not respond uses
up only one of them.

kazoo divides the timeout among the servers that it knows, so a short list is repeated.
"""

RECONNECT = {"max_tries": -1, "delay": 0.05, "max_delay": 0.5}

_REFUSALS: dict[type[Exception], type[StoreError]] = {
    kazoo_errors.NoNodeError: NoNode,
    kazoo_errors.NodeExistsError: NodeExists,
    kazoo_errors.BadVersionError: BadVersion,
    kazoo_errors.NotEmptyError: NotEmpty,
    kazoo_errors.NoChildrenForEphemeralsError: EphemeralParent,
}

_LOST = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.SessionExpiredError,
    kazoo_errors.SessionMovedError,
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.RequestTimeoutError,
    kazoo_errors.AuthFailedError,
)
"""Errors after which it is unknown whether a request was carried out."""

_NOT_THE_CAUSE = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
"""Responses for the operations of a failed multi other than the operation that failed."""


OPEN = ZooKeeperSecurity()


def _acl_of(security: ZooKeeperSecurity) -> list[ACL] | None:
    """Access rights of created nodes; None if any client may change them."""
    rights = []
    if security.digest is not None:
        rights.append(make_digest_acl(*security.digest.split(":", 1), all=True))
    if security.subject is not None:
        rights.append(make_acl("x509", security.subject, all=True))
    return rights or None


class ZooKeeperStore(SingleWrites):
    def __init__(
        self,
        hosts: str,
        threads: Threads,
        session_timeout_ms: int = 6_000,
        security: ZooKeeperSecurity = OPEN,
    ) -> None:
        """`hosts` is a ZooKeeper connect string, `a:2181,b:2181/chroot`."""
        self._hosts, _, chroot = hosts.partition("/")
        self._chroot = f"/{chroot.strip('/')}" if chroot.strip("/") else ""
        self._threads = threads
        self._timeout_s = session_timeout_ms / 1000
        digest = security.digest
        self._acl = _acl_of(security)
        servers = self._hosts.split(",")
        servers *= -(-CONNECTION_ATTEMPTS // len(servers))
        self._handler = _Handler(len(servers))
        try:
            check_path(self._chroot or ROOT)
            self._client = KazooClient(
                ",".join(servers),
                timeout=self._timeout_s,
                handler=self._handler,
                auth_data=[("digest", digest)] if digest else None,
                connection_retry=RECONNECT,
                **security.kazoo_options(),
            )
        except ValueError as error:
            raise ConfigError(
                f"{hosts!r} is not a ZooKeeper connect string ({error}); write HOST:PORT[,HOST:PORT][/CHROOT]"
            ) from None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connected = asyncio.Event()
        self._is_over = False
        self._ending: asyncio.Future[None] | None = None
        self._losses = 0
        self._losses_synced = 0
        self._singles = asyncio.Semaphore(MAX_SINGLE_REQUESTS)
        self._chunk = asyncio.Lock()
        self._watches = Watches()
        self._armed: dict[str, _NodeWatch] = {}
        self._session_callbacks: list[Callable[[SessionState], None]] = []

    async def start(self) -> None:
        """Connect and create the chroot. Raises StoreUnreachable if no server responds within the session
        timeout.
        """
        self._loop = asyncio.get_running_loop()
        self._client.add_listener(self._heard_state)
        self._client.start_async()
        try:
            async with self._deadline():
                await self._make_chroot()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        if self._loop is None:
            return
        self._is_over = True
        self._connected.set()
        await self._end()

    async def get(self, path: str) -> Node:
        check_path(path)
        data, stat = await self._read(partial(self._client.get_async, self._full(path)), path)
        return _node(data, stat)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        for path in paths:
            check_path(path)
        nodes: list[Node | None] = []
        for start in range(0, len(paths), CHUNK):
            async with self._chunk:
                nodes += await self._read_chunk(paths[start : start + CHUNK])
        return nodes

    async def children(self, path: str) -> list[str]:
        check_path(path)
        read = partial(self._client.get_children_async, self._full(path))
        return sorted(await self._read(read, path))

    async def multi(self, operations: Sequence[Operation]) -> list[str | Node | None]:
        request = self._request(operations)
        async with self._deadline():
            await self._until_connected()
        try:
            async with asyncio.timeout(self._timeout_s), self._singles:
                answers = await self._ask(request.commit_async)
        except (TimeoutError, *_LOST) as error:
            # The connection counts as lost after a timeout too: kazoo may not have reported it yet, and a
            # read must not overtake the write.
            self._losses += 1
            raise UnknownOutcome(f"no response from ZooKeeper ({type(error).__name__})") from error
        except kazoo_errors.ZookeeperError as error:
            raise _refusal(error, operations[0].path) from error
        return self._results(operations, answers)

    def watch(self, path: str, callback: Callable[[], None]) -> Callable[[], None]:
        check_path(path)
        stop = self._watches.add(path, callback)
        if path not in self._armed:
            watch = _NodeWatch(self._client, self._full(path), self._post, partial(self._changed, path))
            self._armed[path] = watch
            if self._connected.is_set() and not self._is_over:
                watch.arm()
            else:
                watch.was_lost()
        return stop

    def on_session(self, callback: Callable[[SessionState], None]) -> None:
        self._session_callbacks.append(callback)

    def _full(self, path: str) -> str:
        return self._chroot + path if path != ROOT else self._chroot or ROOT

    def _deadline(self) -> _Deadline:
        return _Deadline(self._timeout_s, self._hosts)

    async def _make_chroot(self) -> None:
        parts = self._chroot.split("/")
        for count in range(2, len(parts) + 1):
            path = "/".join(parts[:count])
            made = False
            while not made:
                await self._until_connected()
                try:
                    await self._ask(partial(self._client.create_async, path, acl=self._acl))
                except kazoo_errors.NodeExistsError:
                    pass
                except _LOST:
                    continue
                except kazoo_errors.ZookeeperError as error:
                    raise _refusal(error, path) from error
                made = True
        await self._until_connected()

    async def _until_connected(self) -> None:
        if not self._is_over:
            await self._connected.wait()
        if self._is_over:
            raise SessionExpired(ROOT)

    async def _read(self, send: Callable[[], AsyncResult], path: str) -> Any:
        """Read, and retry after a lost connection. Raises StoreUnreachable if there is no connection in time."""
        async with self._deadline(), self._singles:
            while True:
                await self._until_connected()
                self._sync()
                try:
                    return await self._ask(send)
                except _LOST:
                    continue
                except kazoo_errors.ZookeeperError as error:
                    raise _refusal(error, path) from error

    async def _read_chunk(self, paths: Sequence[str]) -> list[Node | None]:
        """Read nodes in one pipeline. Responses arrive in order, so the method waits for the last one only."""
        results: list[AsyncResult] = []

        def send() -> AsyncResult:
            results[:] = [self._client.get_async(self._full(path)) for path in paths]
            return results[-1]

        with suppress(NoNode):
            await self._read(send, paths[-1])
        if any(not result.ready() or isinstance(result.exception, _LOST) for result in results):
            return await self._read_chunk(
                paths
            )  # the connection was lost between the first and the last response
        return [_node_or_none(result, path) for result, path in zip(results, paths, strict=True)]

    def _sync(self) -> None:
        """After a lost connection, make the server catch up with all committed writes before the next read.

        After that the outcome of a write is final: ZooKeeper refuses requests of the session's earlier
        connection.
        """
        if self._losses == self._losses_synced:
            return
        losses = self._losses

        def synced(result: AsyncResult) -> None:
            if result.exception is None:
                self._losses_synced = max(self._losses_synced, losses)

        answer = self._client.sync_async(self._full(ROOT))
        answer.rawlink(lambda result: self._post(synced, result))

    async def _ask(self, send: Callable[[], AsyncResult]) -> Any:
        assert self._loop is not None, "the store is not started"
        future: asyncio.Future[AsyncResult] = self._loop.create_future()

        def deliver(result: AsyncResult) -> None:
            # The loss is counted even if the caller was cancelled, because later reads must know of it.
            self._losses += isinstance(result.exception, _LOST)
            if not future.done():
                future.set_result(result)

        send().rawlink(lambda result: self._post(deliver, result))
        return (await future).get_nowait()

    def _request(self, operations: Sequence[Operation]) -> TransactionRequest:
        request = self._client.transaction()
        size = 0
        for operation in operations:
            check_path(operation.path)
            path = self._full(operation.path)
            size += len(path) + OPERATION_BYTES
            match operation:
                case Create(_, data, ephemeral, sequential):
                    request.create(path, data, self._acl, ephemeral, sequential)
                    size += len(data)
                case Set(_, data, version):
                    request.set_data(path, data, version)
                    size += len(data)
                case Delete(_, version):
                    if operation.path == ROOT:
                        raise ValueError("the root cannot be deleted")
                    request.delete(path, version)
                case Check(_, version):
                    request.check(path, version)
        if size > MAX_MULTI_BYTES:
            raise ValueError(
                f"the ZooKeeper transaction has {size} bytes; at most {MAX_MULTI_BYTES} are allowed"
            )
        return request

    def _results(self, operations: Sequence[Operation], answers: Sequence[Any]) -> list[str | Node | None]:
        results: list[str | Node | None] = []
        for operation, answer in zip(operations, answers, strict=True):
            if isinstance(answer, _NOT_THE_CAUSE):
                continue
            if isinstance(answer, Exception):
                at_parent = isinstance(operation, Create) and not isinstance(
                    answer, kazoo_errors.NodeExistsError
                )
                raise _refusal(answer, parent_of(operation.path) if at_parent else operation.path)
            if isinstance(operation, Set):
                results.append(_node(operation.data, answer))
            else:
                results.append(answer[len(self._chroot) :] if isinstance(operation, Create) else None)
        return results

    def _changed(self, path: str) -> None:
        self._watches.notify([path])

    def _post(self, callback: Callable[..., None], *arguments: object) -> None:
        """Run a callback on the loop. kazoo's threads do nothing else."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(callback, *arguments)

    def _heard_state(self, state: str) -> None:
        if state == KazooState.LOST:
            self._handler.is_over = True
        self._post(self._on_state, state)

    def _on_state(self, state: str) -> None:
        if self._is_over:
            return
        if state == KazooState.CONNECTED:
            self._connected.set()
            for watch in self._armed.values():
                watch.arm()
            self._tell(SessionState.CONNECTED)
        elif state == KazooState.SUSPENDED:
            self._connected.clear()
            self._tell(SessionState.SUSPENDED)
        else:
            self._is_over = True
            self._connected.set()
            self._end()
            self._tell(SessionState.EXPIRED)

    def _tell(self, state: SessionState) -> None:
        for callback in self._session_callbacks:
            callback(state)

    def _end(self) -> asyncio.Future[None]:
        """Stop kazoo. Pending requests fail as if the connection were lost."""
        if self._ending is None:
            self._ending = self._threads.run("background", self._stop_client)
        return self._ending

    def _stop_client(self) -> None:
        with suppress(kazoo_errors.WriterNotClosedException):
            self._client.stop()
            self._client.close()


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads and sockets, for one session only: kazoo itself would open another session after expiry."""

    def __init__(self, attempts: int) -> None:
        super().__init__()
        self.is_over = False
        self._attempts = attempts

    def create_connection(self, *arguments: Any, timeout: float, **options: Any) -> Any:
        if self.is_over:
            raise kazoo_errors.ConnectionDropped("the ZooKeeper session has ended")
        return super().create_connection(*arguments, timeout=timeout / self._attempts, **options)


class _Deadline:
    """Timeout that raises StoreUnreachable."""

    def __init__(self, seconds: float, hosts: str) -> None:
        self._timeout = asyncio.timeout(seconds)
        self._hosts = hosts

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        try:
            await self._timeout.__aexit__(kind, error, traceback)
        except TimeoutError:
            raise StoreUnreachable(self._hosts) from None


class _NodeWatch:
    """Watch on a path: two ZooKeeper watches (node and children), set again after each event.

    Setting a watch reads the current state, and `changed` is called if it differs from the previous state. So
    no change is missed between an event and the next watch, or while there was no connection.
    """

    def __init__(
        self, client: KazooClient, path: str, post: Callable[..., None], changed: Callable[[], None]
    ) -> None:
        self._client = client
        self._path = path
        self._post = post
        self._changed = changed
        self._seen: tuple[int, int, int] | None = None
        self._has_seen = False
        self._is_arming = False
        self._must_arm = False
        self._must_tell = False

    def arm(self) -> None:
        if self._is_arming:
            self._must_arm = True
            return
        self._is_arming, self._must_arm = True, False
        node = self._client.exists_async(self._path, watch=self._heard)
        children = self._client.get_children_async(self._path, watch=self._heard, include_data=True)
        children.rawlink(lambda _: self._post(self._armed, node, children))

    def was_lost(self) -> None:
        self._must_tell = not self._has_seen

    def _heard(self, event: WatchedEvent) -> None:
        if event.type != EventType.NONE:
            self._post(self.arm)

    def _armed(self, node: AsyncResult, children: AsyncResult) -> None:
        self._is_arming = False
        if isinstance(node.exception, _LOST) or isinstance(children.exception, _LOST):
            self.was_lost()  # set again on reconnect
        else:
            self._compare(node.value, children.value[1] if children.exception is None else None)
        if self._must_arm:
            self.arm()

    def _compare(self, node: ZnodeStat | None, parent: ZnodeStat | None) -> None:
        # The children watch was set after the node watch, so only its own response shows changes in between.
        now = None if node is None else (node.czxid, node.mzxid, parent.pzxid if parent else 0)
        if self._must_tell or (self._has_seen and now != self._seen):
            self._changed()
        self._seen, self._has_seen, self._must_tell = now, True, False


def _node(data: bytes, stat: ZnodeStat) -> Node:
    return Node(data, stat.version, stat.czxid, stat.ephemeralOwner != 0)


def _node_or_none(result: AsyncResult, path: str) -> Node | None:
    if result.exception is None:
        return _node(*result.value)
    if isinstance(result.exception, kazoo_errors.NoNodeError):
        return None
    raise _refusal(result.exception, path)


def _refusal(error: Exception, path: str) -> PenstockError:
    kind = _REFUSALS.get(type(error))
    return (
        kind(path)
        if kind
        else StorageError(f"ZooKeeper refused the request for {path}: {type(error).__name__}")
    )
