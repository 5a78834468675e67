"""Certificates that are read again while the process runs: files are polled, and usable changes are applied.

If a new certificate has expired, does not match its key or cannot be read, the previous one stays in use; the
failure is logged once for each change of the files, and counted. Open connections keep the certificate of
their handshake.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.clock import Clock
from penstock.errors import ConfigError
from penstock.observability.logs import Logger
from penstock.observability.metrics import BrokerMetrics
from penstock.security.tls_context import LoadedTls, TlsSettings
from penstock.threads import Threads

Load = Callable[[TlsSettings, int], LoadedTls]


class ReloadingTls:
    """TLS context of one listener or kind of connection. `settings` returns the current settings."""

    def __init__(self, name: str, settings: Callable[[], TlsSettings], load: Load) -> None:
        self.name = name
        self._settings = settings
        self._load = load
        self._current: LoadedTls | None = None
        self._read: tuple[TlsSettings, Mapping[str, Any]] | None = None
        self._refused: tuple[TlsSettings, Mapping[str, Any]] | None = None

    @property
    def current(self) -> LoadedTls:
        assert self._current is not None, "certificates are read before a listener opens"
        return self._current

    def read(self, now_ms: int) -> bool:
        """Read the files if they have changed. Returns True if there is a new context. Raises ConfigError
        once for each change that cannot be used.
        """
        settings = self._settings()
        state = (settings, settings.stamp())
        if state == self._read:
            return False
        try:
            loaded = self._load(settings, now_ms)
        except ConfigError:
            if state == self._refused:
                return False
            self._refused = state
            raise
        if settings.stamp() != state[1]:
            return False  # The files are being replaced. The next round reads them.
        self._current, self._read, self._refused = loaded, state, None
        return True


class CertificateReloads:
    """All TLS contexts of a process, and the task that polls their files."""

    def __init__(self, threads: Threads, clock: Clock, logger: Logger) -> None:
        self.reloads = 0
        self.failures = 0
        self._threads = threads
        self._clock = clock
        self._logger = logger
        self._watched: list[ReloadingTls] = []
        self._polling: asyncio.Task[None] | None = None

    async def start(self, contexts: Iterable[ReloadingTls], interval_seconds: Callable[[], float]) -> None:
        """Read all certificates and start to poll their files. Raises ConfigError if one cannot be used."""
        self._watched = list(contexts)
        now_ms = self._clock.now_ms()
        for each in self._watched:
            await self._threads.run("background", lambda each=each: each.read(now_ms))  # type: ignore[misc]
        if self._watched:
            self._polling = asyncio.get_running_loop().create_task(self._poll(interval_seconds))

    async def stop(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait([self._polling])

    async def poll(self) -> None:
        """Read the files that have changed."""
        now_ms = self._clock.now_ms()
        for each in self._watched:
            try:
                if await self._threads.run("background", lambda each=each: each.read(now_ms)):  # type: ignore[misc]
                    self.reloads += 1
                    self._logger.info("certificate reloaded", of=each.name)
            except (ConfigError, OSError) as error:
                self.failures += 1
                self._logger.error(
                    "certificate could not be reloaded; the previous one stays in use",
                    of=each.name,
                    reason=str(error),
                )

    async def _poll(self, interval_seconds: Callable[[], float]) -> None:
        while True:
            await asyncio.sleep(interval_seconds())
            await self.poll()

    def seconds_to_expiry(self) -> float:
        """Seconds until the first certificate expires; negative after that, infinite without a certificate."""
        times_ms = [each.current.expires_ms for each in self._watched if each.current.expires_ms]
        return (min(times_ms) - self._clock.now_ms()) / 1000 if times_ms else float("inf")

    def show(self, metrics: BrokerMetrics) -> None:
        if self._watched:
            metrics.add_gauge(
                "penstock_tls_certificate_expiry_seconds",
                "Seconds until the first certificate of this process expires.",
                self.seconds_to_expiry,
            )
        metrics.add_counter(
            "penstock_tls_reloads", "Changed certificates that were loaded.", lambda: self.reloads
        )
        metrics.add_counter(
            "penstock_tls_reload_failures",
            "Changed certificates that could not be loaded.",
            lambda: self.failures,
        )
