"""Fixture of an S3-compatible server in a process of its own, because deltalake holds the GIL while it waits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import boto3
from botocore.config import Config

from penstock.testing.process import free_ports

BUCKET = "archives"


def settings_of(port: int) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


@contextmanager
def moto_server() -> Iterator[Mapping[str, str]]:
    """Server with one bucket. Yields the environment variables that reach it."""
    [port] = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    with _running(command):
        settings = settings_of(port)
        patient = Config(retries={"total_max_attempts": 20, "mode": "standard"})
        client = boto3.client(
            "s3",
            config=patient,
            endpoint_url=settings["AWS_ENDPOINT_URL"],
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            region_name="us-east-1",
        )
        client.create_bucket(Bucket=BUCKET)
        yield settings


@contextmanager
def expiring_server(flag: Path) -> Iterator[Mapping[str, str]]:
    """Server that refuses all requests with ExpiredToken while the file exists."""
    with moto_server() as behind:
        [port] = free_ports(1)
        upstream = behind["AWS_ENDPOINT_URL"].rpartition(":")[2]
        script = Path(__file__).with_name("expiring_s3.py")
        with _running([sys.executable, str(script), str(port), upstream, str(flag)]):
            yield settings_of(port)


@contextmanager
def _running(command: list[str]) -> Iterator[None]:
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        server.kill()
        server.wait()
