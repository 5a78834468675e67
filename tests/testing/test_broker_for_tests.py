"""The package `penstock.testing`: its context managers, and its fixtures in a pytest run of their own."""

from __future__ import annotations

import os
import signal

import pytest

from penstock import Consumer, Producer
from penstock.internal_client.records import LATEST
from penstock.pipeline.offsets import end_offsets_of
from penstock.pipeline.read_settings import ReadSettings
from penstock.testing import AsyncBroker, Broker

pytestmark = pytest.mark.usefixtures("starts_processes")

pytest_plugins = ["pytester"]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_broker_serves_within_its_block_and_leaves_nothing() -> None:
    with Broker() as broker:
        with Producer(broker.bootstrap) as producer:
            assert producer.send_and_wait("t", "x").offset == 0
        pid, directory = broker.pid, broker.data_dir.parent
    assert not is_alive(pid)
    assert not directory.exists()


def test_broker_keeps_its_data_over_a_kill() -> None:
    with Broker() as broker:
        with Producer(broker.bootstrap) as producer:
            producer.send_and_wait("t", "x")
        broker.kill()
        broker.start()
        with Consumer("t", bootstrap=broker.bootstrap) as consumer:
            message = consumer.poll(20)
        assert message is not None
        assert message.raw == b"x"


def test_secure_broker_serves_its_administrator(penstock_secure_broker: Broker) -> None:
    broker = penstock_secure_broker
    with Producer(broker.bootstrap) as producer:
        producer.send_and_wait("t", "x")
    with Consumer("t", bootstrap=broker.bootstrap) as consumer:
        message = consumer.poll(20)
    assert message is not None
    assert message.raw == b"x"
    assert broker.client_config["sasl.username"] == "admin"
    # The pipeline takes the same settings from its environment.
    assert list(end_offsets_of(ReadSettings(broker.bootstrap), [("t", 0)], LATEST).values()) == [1]


async def test_async_context_manager_starts_a_broker() -> None:
    async with AsyncBroker({"auto.create.topics.enable": "false"}) as broker:
        pid = broker.pid
        assert is_alive(pid)
    assert not is_alive(pid)


def test_broker_for_tests_ignores_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_NO_SUCH_SETTING", "1")
    with Broker():
        pass


def test_a_setting_that_is_wrong_is_shown_from_the_log() -> None:
    with pytest.raises(AssertionError, match=r"durability"), Broker({"durability": "maybe"}):
        pass


def test_a_failure_in_the_block_shows_the_end_of_the_log() -> None:
    with pytest.raises(ZeroDivisionError) as caught, Broker():
        _ = 1 / 0
    assert "serving" in caught.value.__notes__[0]


def test_broker_starts_after_a_previous_broker_died() -> None:
    with pytest.raises(AssertionError, match="exit code"), Broker() as broker:
        os.kill(broker.pid, signal.SIGKILL)
    with Broker():
        pass


def test_the_fixtures_need_no_import_and_show_the_log_of_a_failed_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from penstock import Producer

        ports = set()

        def test_own(penstock_broker):
            with Producer(penstock_broker.bootstrap) as producer:
                assert producer.send_and_wait("t", "x").offset == 0

        def test_own_is_fresh(penstock_broker):
            with Producer(penstock_broker.bootstrap) as producer:
                assert producer.send_and_wait("t", "x").offset == 0

        def test_shared(penstock_session_broker):
            ports.add(penstock_session_broker.port)

        def test_shared_is_the_same(penstock_session_broker):
            ports.add(penstock_session_broker.port)
            assert len(ports) == 1

        def test_that_fails(penstock_broker):
            assert False, "on purpose"
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error")
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["*log of penstock_broker*", '*"message": "serving"*'])
