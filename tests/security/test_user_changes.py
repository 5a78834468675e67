"""Changes of users while their broker is killed: acknowledged ones stay, others are made or not, and nothing breaks."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.internal_client.client import InternalClient
from penstock.internal_client.client_security import ClientSecurity
from penstock.testing.process import BrokerProcess, free_ports
from support.eventually import eventually

USERS = 3
KILLS = 4


class Changes:
    """Passwords of users: the last one that was acknowledged, and those that may have come after it."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, str] = {}
        self.later: dict[str, set[str]] = {}
        self.sent = 0

    async def run(self, bootstrap: str, is_over: threading.Event) -> None:
        async with client_of(bootstrap, None) as client:
            while not is_over.is_set():
                self.sent += 1
                user, password = f"user-{self.sent % USERS}", f"password-{random.getrandbits(32)}"
                self.later.setdefault(user, set()).add(password)
                try:
                    await client.users.set_password(user, password)
                except (PenstockError, OSError):
                    return  # the broker was killed
                self.acknowledged[user], self.later[user] = password, set()

    async def check(self, address: str) -> None:
        for user in {*self.acknowledged, *self.later}:
            known = self.acknowledged.get(user)
            candidates = [*self.later.get(user, ()), *([] if known is None else [known])]
            right = [each for each in candidates if await logs_in(address, user, each)]
            assert len(right) == 1 or (known is None and not right), user
            if right:
                self.acknowledged[user] = right[0]
            self.later[user] = set()


def client_of(bootstrap: str, security: ClientSecurity | None) -> InternalClient:
    return InternalClient.to(bootstrap, "test", 0.0, security=security)


async def logs_in(address: str, user: str, password: str) -> bool:
    try:
        async with client_of(address, ClientSecurity(None, None, user, password)) as client:
            await client.brokers.ids()
    except OSError:
        return False
    return True


@pytest.mark.usefixtures("starts_processes")
def test_acknowledged_passwords_survive_kills(tmp_path: Path) -> None:
    plain, sasl = free_ports(2)
    listeners = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}"
    broker = BrokerProcess(tmp_path, [f"listeners={listeners}", "authorization.mode=off"])
    changes = Changes()
    try:
        for _ in range(KILLS):
            start(broker, plain)
            asyncio.run(changes.check(f"127.0.0.1:{sasl}"))
            change_and_kill(broker, changes, f"127.0.0.1:{plain}")
        start(broker, plain)
        asyncio.run(changes.check(f"127.0.0.1:{sasl}"))
        assert len(changes.acknowledged) == USERS
        broker.stop()
    finally:
        broker.kill()
    assert not any(password in broker.log_path.read_text() for password in changes.acknowledged.values())


def start(broker: BrokerProcess, port: int) -> None:
    broker.spawn()
    eventually(lambda: asyncio.run(_is_up(f"127.0.0.1:{port}")))


def change_and_kill(broker: BrokerProcess, changes: Changes, bootstrap: str) -> None:
    """Kill the broker in the middle of changes, each of which takes a few milliseconds."""
    enough, is_over = changes.sent + random.randint(2, 8), threading.Event()
    changing = threading.Thread(target=lambda: asyncio.run(changes.run(bootstrap, is_over)))
    changing.start()
    eventually(lambda: changes.sent >= enough)
    broker.kill()
    is_over.set()
    changing.join()


async def _is_up(bootstrap: str) -> bool:
    try:
        async with client_of(bootstrap, None) as client:
            return bool(await client.brokers.ids())
    except OSError:
        return False
