"""Storages of tables for `make storages`: a local directory, HDFS and an S3 server, each as a root to write below.

HDFS is Hadoop's mini cluster from Maven, the S3 server is Versity's gateway from the Go module proxy. Both are built
into `build/storages` on first use; they are no part of the product.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
from botocore.config import Config

from penstock.testing.process import free_ports

HERE = Path(__file__).resolve().parent / "storages"
BUILD = HERE.parents[2] / "build" / "storages"
GATEWAY = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
NAMES = ("local", "hdfs", "s3")
_TOOLS = {"local": (), "hdfs": ("java", "mvn"), "s3": ("go",)}


def missing_tools(name: str) -> list[str]:
    return [tool for tool in _TOOLS[name] if shutil.which(tool) is None]


@contextmanager
def storage(name: str, directory: Path) -> Iterator[str]:
    """Root below which tables of a storage are written. Sets the environment variables that reach it."""
    if name == "hdfs":
        with _hdfs(directory / "hdfs") as root:
            yield root
    elif name == "s3":
        with _s3(directory / "s3") as root:
            yield root
    else:
        yield str(directory / "tables")


@contextmanager
def _hdfs(directory: Path) -> Iterator[str]:
    shutil.copytree(HERE, BUILD, dirs_exist_ok=True)
    if not (BUILD / "lib").exists():
        _build("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib")
    [port] = free_ports(1)
    server = subprocess.Popen(
        ["java", "-Xmx512m", "-cp", "lib/*", "Hdfs.java", str(directory), str(port)],
        cwd=BUILD,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n", "HDFS did not start"
        yield f"hdfs://127.0.0.1:{port}/tables"
    finally:
        server.kill()
        server.wait()


@contextmanager
def _s3(directory: Path) -> Iterator[str]:
    program = BUILD / "versitygw"
    if not program.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        _build("go", "install", GATEWAY)
    directory.mkdir(parents=True)
    [port] = free_ports(1)
    settings = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "penstock",
        "AWS_SECRET_ACCESS_KEY": "penstock-secret",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    given = {name: os.environ.get(name) for name in settings}
    os.environ |= settings
    keys = ["--access", settings["AWS_ACCESS_KEY_ID"], "--secret", settings["AWS_SECRET_ACCESS_KEY"]]
    command = [str(program), "--port", f"127.0.0.1:{port}", *keys, "posix", str(directory)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        patient = Config(retries={"total_max_attempts": 20, "mode": "standard"})
        boto3.client("s3", config=patient).create_bucket(Bucket="archives")
        yield "s3://archives/tables"
    finally:
        server.kill()
        server.wait()
        for name, value in given.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _build(*command: str) -> None:
    environment = {**os.environ, "GOBIN": str(BUILD)}
    subprocess.run(command, cwd=BUILD, env=environment, check=True, timeout=1200)
