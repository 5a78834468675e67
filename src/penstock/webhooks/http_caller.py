"""HTTP calls to receivers: resolves their names, checks their addresses, and keeps idle connections for later calls.

Each connection is made to a checked address, not to the name, so a name that resolves to another address a moment
later cannot bypass the check. Redirects 307 and 308 are followed with the same checks. Loop thread only.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from penstock.config.address_rules import AddressRules
from penstock.net.network import resolve_host
from penstock.threads import Threads
from penstock.webhooks.http_connection import Answer, CallFailed, HttpClientConnection
from penstock.webhooks.receiver_url import InvalidUrl, Receiver, redirected

MAX_REDIRECTS: Final = 3
MAX_IDLE: Final = 32
"""Maximum number of idle connections that are kept for a receiver."""
IDLE_SECONDS: Final = 30.0
TLS_SECONDS: Final = 60.0
"""Time in seconds after which the trusted certificates are read from their file again."""
_REDIRECTS: Final = (307, 308)
_Place = tuple[str, str, int]


class _Tls(NamedTuple):
    """TLS context, with the file of its trusted certificates and the time of reading in seconds of the loop's clock."""

    file: str | None
    read_at: float
    context: ssl.SSLContext


def _make_tls_context(authorities: str | None) -> ssl.SSLContext:
    """Create a context that trusts the authorities of the system and those in the file `authorities`.

    Runs in a thread pool, since it reads files.
    """
    context = ssl.create_default_context()
    if authorities is not None:
        context.load_verify_locations(authorities)
    return context


class WebhookCaller(Protocol):
    async def call(
        self, receiver: Receiver, headers: Sequence[tuple[str, str]], body: bytes, timeout_s: float
    ) -> Answer:
        """Send a POST request; raises CallFailed if no response comes within `timeout_s`."""
        ...

    async def check(self, receiver: Receiver) -> None:
        """Raise CallFailed if webhooks may connect to none of the receiver's addresses.

        A name that cannot be resolved is no error, since it may be resolved later.
        """
        ...

    def close(self) -> None: ...


class HttpCaller:
    def __init__(
        self,
        rules: Callable[[], AddressRules],
        threads: Threads,
        authorities: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Create a caller. `authorities` returns the path of a file with trusted certificates, which are added to those
        of the system, or None.
        """
        self._rules = rules
        self._authorities = authorities
        self._threads = threads
        self._idle: dict[_Place, list[tuple[HttpClientConnection, asyncio.TimerHandle]]] = {}
        self._resolving: dict[tuple[str, int], asyncio.Future[Sequence[str]]] = {}
        self._tls: _Tls | None = None

    def close(self) -> None:
        for connections in self._idle.values():
            for connection, timer in connections:
                timer.cancel()
                connection.close()
        self._idle.clear()

    async def check(self, receiver: Receiver) -> None:
        try:
            await self._address(receiver)
        except OSError:
            return  # the name may be resolved later

    async def call(
        self, receiver: Receiver, headers: Sequence[tuple[str, str]], body: bytes, timeout_s: float
    ) -> Answer:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._follow(receiver, headers, body)
        except TimeoutError:
            raise CallFailed(f"no response within {timeout_s:g} s") from None
        except (OSError, ssl.SSLError) as error:
            raise CallFailed(f"{receiver.authority}: {error}") from None

    async def _follow(self, receiver: Receiver, headers: Sequence[tuple[str, str]], body: bytes) -> Answer:
        for _ in range(MAX_REDIRECTS + 1):
            answer = await self._post(receiver, headers, body)
            if answer.status not in _REDIRECTS:
                return answer
            try:
                receiver = redirected(receiver, answer.location)
            except InvalidUrl as error:
                raise CallFailed(f"redirect refused: {error}") from None
        raise CallFailed(f"more than {MAX_REDIRECTS} redirects")

    async def _post(self, receiver: Receiver, headers: Sequence[tuple[str, str]], body: bytes) -> Answer:
        while (connection := self._take_idle(receiver)) is not None:
            try:
                return await connection.post(receiver.authority, receiver.target, headers, body)
            except CallFailed:
                if connection.has_received:
                    raise
                # The receiver closed the connection before it saw the request.
        connection = await self._connect(receiver)
        return await connection.post(receiver.authority, receiver.target, headers, body)

    async def _connect(self, receiver: Receiver) -> HttpClientConnection:
        address = await self._address(receiver)
        tls = await self._tls_context() if receiver.scheme == "https" else None
        _, connection = await asyncio.get_running_loop().create_connection(
            partial(HttpClientConnection, partial(self._keep, receiver[:3])),
            address,
            receiver.port,
            ssl=tls,
            server_hostname=receiver.host if tls else None,
        )
        return connection

    async def _address(self, receiver: Receiver) -> str:
        """Address of the receiver that the address rules allow; raises CallFailed if there is none."""
        rules = self._rules()
        addresses = await self._resolve(receiver.host, receiver.port)
        address = rules.choose(addresses)
        if address is None:
            shown = ", ".join(addresses[:3])
            raise CallFailed(
                f"{receiver.host} has the address {shown}, which is private, local or reserved; "
                "webhook.allow.private.addresses on the brokers allows networks"
            )
        return address

    async def _resolve(self, host: str, port: int) -> Sequence[str]:
        """Addresses of a name. Concurrent calls for the same name share one lookup, so a name server that does not
        respond blocks one thread only.
        """
        key = host, port
        pending = self._resolving.get(key)
        if pending is None:
            pending = self._threads.run("names", partial(resolve_host, host, port))
            self._resolving[key] = pending
            pending.add_done_callback(partial(self._on_resolved, key))
        return await asyncio.shield(pending)

    def _on_resolved(self, key: tuple[str, int], done: asyncio.Future[Sequence[str]]) -> None:
        del self._resolving[key]
        if not done.cancelled():
            done.exception()

    async def _tls_context(self) -> ssl.SSLContext:
        file, now = self._authorities(), asyncio.get_running_loop().time()
        known = self._tls
        if known is None or known.file != file or now - known.read_at >= TLS_SECONDS:
            try:
                context = await self._threads.run("names", partial(_make_tls_context, file))
            except (OSError, ssl.SSLError) as error:
                raise CallFailed(f"webhook.ssl.ca.location {file} cannot be read: {error}") from None
            known = self._tls = _Tls(file, now, context)
        return known.context

    # --- idle connections

    def _keep(self, place: _Place, connection: HttpClientConnection) -> None:
        idle = self._idle.setdefault(place, [])
        if len(idle) >= MAX_IDLE:
            connection.close()
            return
        timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._expire, place, connection)
        idle.append((connection, timer))

    def _take_idle(self, receiver: Receiver) -> HttpClientConnection | None:
        idle = self._idle.get(receiver[:3], [])
        while idle:
            connection, timer = idle.pop()
            timer.cancel()
            if connection.is_open:
                return connection
        self._idle.pop(receiver[:3], None)
        return None

    def _expire(self, place: _Place, connection: HttpClientConnection) -> None:
        connection.close()
        left = [each for each in self._idle.get(place, []) if each[0] is not connection]
        if left:
            self._idle[place] = left
        else:
            self._idle.pop(place, None)
