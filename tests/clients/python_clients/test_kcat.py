"""Unmodified kcat, if it is installed: records piped in and out."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from samples import CODECS, PATIENCE_S

from support.broker_process import Address
from support.cluster_processes import BROKERS

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
pytestmark = pytest.mark.skipif(KCAT is None, reason="kcat is not installed")


def kcat(broker: Address, *arguments: str, given: str = "") -> str:
    command = [str(KCAT), "-q", "-b", broker.bootstrap, *arguments]
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_reads_back_what_it_produced(broker: Address, topic_name: str, codec: str) -> None:
    lines = [f"key {number}:value {number}" for number in range(200)]
    produce = ("-P", "-t", topic_name, "-p", "0", "-K", ":", "-z", codec, "-H", "source=kcat")
    kcat(broker, *produce, given="\n".join(lines) + "\n")
    consume = ("-C", "-t", topic_name, "-p", "0", "-o", "beginning", "-e", "-f", "%o %h %k:%s\n")
    found = kcat(broker, *consume).splitlines()
    assert found == [f"{offset} source=kcat {line}" for offset, line in enumerate(lines)]


def test_kcat_reads_the_last_messages(broker: Address, topic_name: str) -> None:
    kcat(broker, "-P", "-t", topic_name, "-p", "0", given="one\ntwo\nthree\n")
    assert kcat(broker, "-C", "-t", topic_name, "-p", "0", "-o", "-2", "-e").splitlines() == ["two", "three"]


def test_kcat_finds_an_offset_by_time(broker: Address, topic_name: str) -> None:
    kcat(broker, "-P", "-t", topic_name, "-p", "0", given="one\n")
    assert f"{topic_name} [0] offset 0" in kcat(broker, "-Q", "-t", f"{topic_name}:0:1")


def test_kcat_lists_metadata(broker: Address, topic_name: str) -> None:
    kcat(broker, "-P", "-t", topic_name, "-p", "0", given="one\n")
    listed = json.loads(kcat(broker, "-L", "-J", "-t", topic_name))
    assert [topic["topic"] for topic in listed["topics"]] == [topic_name]
    assert len(listed["brokers"]) == BROKERS
