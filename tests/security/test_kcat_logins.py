"""Unmodified kcat, if it is installed, at listeners with SASL and TLS and with a client certificate."""

from __future__ import annotations

import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

from penstock.config import Address
from support.certificates import TestAuthority
from support.secure_brokers import add_user, address_of, in_thread, named
from support.whole_brokers import Brokers, run

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
LISTENERS = "SASL_SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"

pytestmark = [
    pytest.mark.usefixtures("starts_processes"),
    pytest.mark.skipif(KCAT is None, reason="kcat is not installed"),
]


def kcat(address: Address, settings: dict[str, str], *arguments: str, given: str = "") -> str:
    options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
    command = [str(KCAT), "-b", str(address), *options, *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def round_trip(address: Address, settings: dict[str, str], topic: str) -> None:
    """Produce a record with kcat, and read it."""
    await in_thread(partial(kcat, address, settings, "-P", "-t", topic, given="hello\n"))
    read = await in_thread(partial(kcat, address, settings, "-C", "-t", topic, "-o", "beginning", "-e", "-q"))
    assert read == "hello\n"


def test_kcat_logs_in_with_every_mechanism_and_certificate(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await add_user(harness, "alice", "secret")
        user = {"sasl.username": "alice", "sasl.password": "secret"}
        tls = {"ssl.ca.location": str(authority.file)}
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            login = {"security.protocol": "SASL_SSL", "sasl.mechanisms": mechanism, **user, **tls}
            await harness.create(f"tls-{mechanism}")
            await round_trip(address_of(brokers, 1, "SASL_SSL"), login, f"tls-{mechanism}")
        plain = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "SCRAM-SHA-512", **user}
        await harness.create("plain")
        await round_trip(address_of(brokers, 1, "SASL_PLAINTEXT"), plain, "plain")
        file = str(authority.issue("bob", ()))
        certificate = {"ssl.certificate.location": file, "ssl.key.location": file}
        await harness.create("certificate")
        shown = {"security.protocol": "SSL", **tls, **certificate}
        await round_trip(address_of(brokers, 1, "SSL"), shown, "certificate")
        wrong = {**plain, "sasl.password": "guess"}
        with pytest.raises(AssertionError):
            await in_thread(partial(kcat, address_of(brokers, 1, "SASL_PLAINTEXT"), wrong, "-L", "-m", "3"))

    run(
        tmp_path,
        scenario,
        listeners=LISTENERS,
        listener_name_ssl_ssl_client_auth="required",
        **named(authority.settings()),
    )
