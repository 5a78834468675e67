"""A broker that lives as long as a `with` block, with fresh data and free ports.

The broker uses page-cache durability and forms groups without delay, because tests need speed, not protection from
power loss.
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.testing.process import BrokerProcess, answers

QUICK = {
    "durability": "os",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.share.heartbeat.interval.ms": "200",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}


class Broker(BrokerProcess):
    """A test broker: `with Broker() as broker: Producer(broker.bootstrap)`. Settings have the names of `penstock broker
    --set`.

    With `secure` the broker has TLS and users, as with `penstock broker --secure`. `environment` contains the variables
    with which clients and commands log in as the administrator, `client_config` the settings for confluent-kafka.
    """

    def __init__(self, settings: Mapping[str, str] | None = None, *, secure: bool = False) -> None:
        self.secure = secure
        self._directory = Path(tempfile.mkdtemp(prefix="penstock-test-"))
        chosen = QUICK | dict(settings or {})
        super().__init__(self._directory, [f"{name}={value}" for name, value in chosen.items()])

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for clients and commands: the address, and for a secure broker the login."""
        if not self.secure:
            return {"PENSTOCK_BOOTSTRAP": self.bootstrap}
        tls = self.data_dir / "tls"
        return {
            "PENSTOCK_BOOTSTRAP": self.bootstrap,
            "PENSTOCK_CA": str(tls / "ca.pem"),
            "PENSTOCK_USER": "admin",
            "PENSTOCK_PASSWORD_FILE": str(tls / "admin.password"),
        }

    @property
    def client_config(self) -> dict[str, Any]:
        """confluent-kafka settings to log in as the administrator."""
        from penstock.internal_client.client_security import ClientSecurity

        security = ClientSecurity.from_environment(self.environment).librdkafka()
        return {"bootstrap.servers": self.bootstrap, **security}

    def _command(self) -> list[str]:
        return [*super()._command(), *(["--secure"] if self.secure else [])]

    def _environment(self) -> dict[str, str]:
        # `--secure` writes a context, which must not become the current context of the user.
        return super()._environment() | {"XDG_CONFIG_HOME": str(self._directory / "config")}

    def _answers(self) -> bool:
        if not self.secure:
            return super()._answers()
        ca = self.data_dir / "tls" / "ca.pem"
        try:
            context = ssl.create_default_context(cafile=str(ca))
        except OSError:
            return False  # the broker has not issued its certificates yet
        return answers(self.port, context)

    def close(self) -> None:
        """Stop the broker and remove its data. Raises AssertionError if the broker did not stop cleanly."""
        try:
            self.stop()
        finally:
            self.kill()
            shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"the end of the broker's log:\n{self.log_tail()}")
        self.close()


class AsyncBroker:
    """A test broker for `async with`, which returns a `Broker`."""

    def __init__(self, settings: Mapping[str, str] | None = None, *, secure: bool = False) -> None:
        self._broker = Broker(settings, secure=secure)

    async def __aenter__(self) -> Broker:
        return await asyncio.to_thread(self._broker.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._broker.__exit__, kind, error, trace)
