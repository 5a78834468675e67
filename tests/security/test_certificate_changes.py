"""Certificates and authorities that change while clients come and go: no request fails."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from penstock.config import Address
from penstock.security.certificates import CertificateRequest, issue
from penstock.wire.apis import API_VERSIONS
from penstock.wire.messages import encode_request_frame
from support.certificates import TestAuthority, now_ms, replace_file
from support.eventually import eventually_async
from support.secure_brokers import address_of, consume, create, in_thread, named, produce
from support.whole_brokers import Brokers, run

CLIENTS = 25
CHANGES = 8
HOSTS = ("localhost", "127.0.0.1")


async def ask_once(address: Address, context: ssl.SSLContext) -> None:
    """Connect, make one request and read the start of its response."""
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    writer.write(encode_request_frame(API_VERSIONS, 0, 7, "test", {}))
    assert len(await reader.readexactly(8)) == 8
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def come_and_go(address: Address, context: ssl.SSLContext, is_over: Callable[[], bool]) -> int:
    count = 0
    while not is_over():
        await ask_once(address, context)
        count += 1
    return count


def test_no_connection_fails_while_certificates_are_replaced(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")
    settings = authority.settings()
    file = Path(settings["ssl.keystore.location"])
    key_file = tmp_path / "tls" / "key.pem"
    first = issue(authority.pair, CertificateRequest("broker", HOSTS, 30), now_ms())
    replace_file(file, first.certificate)
    replace_file(key_file, first.key)

    async def scenario(brokers: Brokers) -> None:
        await brokers.start(1)
        reloads = brokers.running[1]._security.reloads
        address = address_of(brokers, 1, "SSL")
        context = ssl.create_default_context(cafile=str(authority.file))
        is_over = False
        clients = [
            asyncio.create_task(come_and_go(address, context, lambda: is_over)) for _ in range(CLIENTS)
        ]
        for days in range(40, 40 + CHANGES):
            made = issue(authority.pair, CertificateRequest("broker", HOSTS, days), now_ms())
            # Between the two writes, key and certificate do not match: the pair before stays in use.
            before = reloads.failures
            writes = [(key_file, made.key), (file, made.certificate)]
            for place, content in writes if days % 2 else reversed(writes):
                replace_file(place, content)
                await eventually_async(lambda before=before: reloads.failures > before)  # type: ignore[misc]
            await eventually_async(partial(_expires_in, reloads.seconds_to_expiry, days))
        is_over = True
        counts = await asyncio.gather(*clients)
        assert min(counts) > 0

    run(
        tmp_path,
        scenario,
        listeners="SSL://127.0.0.1:0",
        ssl_reload_interval_ms="20",
        ssl_keystore_key_location=str(key_file),
        **named(settings),
    )


def _expires_in(seconds: Callable[[], float], days: int) -> bool:
    return abs(seconds() - days * 86_400) < 43_200


def test_authority_is_replaced_without_a_failed_request(tmp_path: Path) -> None:
    """The documented order: trust both authorities, then new certificates, then the new authority alone."""
    old, new = TestAuthority(tmp_path / "old", "old"), TestAuthority(tmp_path / "new", "new")
    trusted, certificate = tmp_path / "trusted.pem", tmp_path / "broker.pem"
    replace_file(trusted, old.file.read_bytes())
    replace_file(certificate, old.issue("broker").read_bytes())
    both = tmp_path / "both.pem"
    both.write_bytes(old.file.read_bytes() + new.file.read_bytes())

    async def scenario(brokers: Brokers) -> None:
        for number in (1, 2):
            await brokers.start(number)
        reloads = [brokers.running[number]._security.reloads for number in (1, 2)]

        async def until_reloaded(file: Path, content: bytes) -> None:
            before = [each.reloads for each in reloads]
            replace_file(file, content)
            await eventually_async(
                lambda: all(each.reloads >= count + 2 for each, count in zip(reloads, before, strict=True))
            )

        addresses = ",".join(str(address_of(brokers, number, "SSL")) for number in (1, 2))
        client = {
            "bootstrap.servers": addresses,
            "security.protocol": "SSL",
            "ssl.ca.location": str(both),
            "log_level": 3,
        }
        await in_thread(lambda: create(client, "t", 2))
        await in_thread(lambda: produce(client, "t", 10))
        await until_reloaded(trusted, both.read_bytes())
        await until_reloaded(certificate, new.issue("broker").read_bytes())
        await in_thread(lambda: produce(client, "t", 10))
        await until_reloaded(trusted, new.file.read_bytes())
        # New connections between brokers are checked against the new authority.
        await brokers.stop(2)
        await brokers.start(2)
        await eventually_async(lambda: brokers.members(1, "t") == {1, 2})
        only_new = {**client, "ssl.ca.location": str(new.file)}
        only_new["bootstrap.servers"] = str(address_of(brokers, 1, "SSL"))
        await in_thread(lambda: produce(only_new, "t", 10))
        assert len(await in_thread(lambda: consume(only_new, "t", 30))) == 30
        assert not any(each.failures for each in reloads)

    run(
        tmp_path,
        scenario,
        listeners="SSL://127.0.0.1:0",
        ssl_reload_interval_ms="20",
        ssl_keystore_location=str(certificate),
        ssl_truststore_location=str(trusted),
    )
