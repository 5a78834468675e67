from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from penstock.config import BrokerConfig, LoggingLevel
from penstock.errors import ProtocolError
from penstock.model import TopicPartition
from penstock.observability.library_logs import take_over_library_logs
from penstock.observability.log_lines import coloured_line, json_line, text_line
from penstock.observability.logs import LINES_PER_WINDOW, WINDOW_SECONDS, Formatter, Logger, open_logger


class ManualClock:
    def __init__(self) -> None:
        self.seconds = 1_700_000_000.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


class Written:
    """Logger and the lines it wrote."""

    def __init__(self, form: Formatter = json_line, level: LoggingLevel = LoggingLevel.INFO) -> None:
        self.clock = ManualClock()
        self.lines: list[str] = []
        self.log = Logger(self.clock, self.lines.append, form, level)

    @property
    def last(self) -> dict[str, object]:
        return dict(json.loads(self.lines[-1]))


def test_a_json_line_carries_time_level_message_and_values() -> None:
    written = Written()
    written.log.info("serving", port=9092, host="localhost", clean=True)
    assert written.last == {
        "time": "2023-11-14T22:13:20.000Z",
        "level": "info",
        "message": "serving",
        "port": 9092,
        "host": "localhost",
        "clean": True,
    }


def test_text_line_format() -> None:
    written = Written(text_line)
    written.log.warning("disk nearly full", free_bytes=12, path="a b")
    assert written.lines == ['2023-11-14 22:13:20.000 WARNING disk nearly full free_bytes=12 path="a b"\n']


def test_lines_below_the_level_are_left_out() -> None:
    written = Written(level=LoggingLevel.WARNING)
    written.log.debug("a")
    written.log.info("b")
    written.log.warning("c")
    written.log.error("d")
    assert [json.loads(line)["message"] for line in written.lines] == ["c", "d"]


@pytest.mark.parametrize("form", [json_line, text_line, coloured_line])
@pytest.mark.parametrize(
    "hostile", ["a\nlevel=error forged", "\x1b[31mred", "\u202e\u0085\x9b31m", "${jndi:x}\r"]
)
def test_value_cannot_forge_a_line_or_control_a_terminal(form: Formatter, hostile: str) -> None:
    written = Written(form)
    written.log.info("connected", client_id=hostile)
    line = written.lines[0].removeprefix("\x1b[32m").removesuffix("\x1b[0m\n").removesuffix("\n")
    assert line.isprintable()
    assert line.isascii()


def test_long_value_is_truncated() -> None:
    written = Written()
    written.log.info("connected", client_id="x" * 65_536)
    assert len(written.lines[0]) < 400


def test_repeated_line_is_rate_limited_and_counted() -> None:
    written = Written()
    for _ in range(100):
        written.log.warning_rarely("refused", peer="p")
    assert len(written.lines) == LINES_PER_WINDOW
    written.clock.seconds += WINDOW_SECONDS
    written.log.warning_rarely("refused", peer="p")
    assert written.last["suppressed"] == 100 - LINES_PER_WINDOW


def test_rate_limit_is_separate_for_each_message() -> None:
    written = Written()
    for _ in range(100):
        written.log.warning_rarely("refused")
    written.log.warning_rarely("other")
    assert written.last["message"] == "other"


def test_a_peers_fault_is_a_warning_without_a_traceback() -> None:
    written = Written()
    written.log.error_rarely("connection closed", ProtocolError("bad size"))
    assert written.last["level"] == "warning"
    assert written.last["error"] == "ProtocolError: bad size"
    assert "traceback" not in written.last


def test_internal_error_is_logged_with_traceback() -> None:
    written = Written(text_line)
    try:
        raise KeyError("lost")
    except KeyError as error:
        written.log.error_rarely("connection closed", error)
    assert "ERROR" in written.lines[0]
    assert "test_logs.py" in written.lines[0]


@pytest.mark.parametrize(
    ("setting", "is_terminal", "starts_with"),
    [("auto", False, "{"), ("auto", True, "\x1b["), ("json", True, "{"), ("text", False, "2023")],
)
def test_format_follows_setting_and_terminal(setting: str, is_terminal: bool, starts_with: str) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: is_terminal  # type: ignore[method-assign]
    open_logger(BrokerConfig({"logging.format": setting}), ManualClock(), stream).info("x")
    assert stream.getvalue().startswith(starts_with)


@pytest.fixture
def untouched_root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("untouched_root_logger")
def test_library_logs_use_our_format() -> None:
    written = Written()
    take_over_library_logs(written.log)
    logging.getLogger("some.library").info("chatter")
    logging.getLogger("some.library").warning("odd %s", "thing\n")
    assert len(written.lines) == 1
    assert (written.last["logger"], written.last["text"]) == ("some.library", "odd thing\n")


@pytest.mark.usefixtures("untouched_root_logger")
def test_library_warnings_are_rate_limited() -> None:
    written = Written()
    take_over_library_logs(written.log)
    for _ in range(100):
        logging.getLogger("some.library").warning("again")
    assert len(written.lines) == LINES_PER_WINDOW


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ("Connection dropped: socket connection error: Connection refused", "zookeeper connection lost"),
        ("Connection time-out", "zookeeper connection timed out"),
        ("Session has expired", "zookeeper session expired"),
        ("Failed connecting to Zookeeper within the connection retry policy.", "zookeeper unreachable"),
        ("something new", "message of the zookeeper client"),
    ],
)
@pytest.mark.usefixtures("untouched_root_logger")
def test_lines_of_the_zookeeper_client_become_events(text: str, event: str) -> None:
    written = Written()
    take_over_library_logs(written.log)
    logging.getLogger("kazoo.client").warning(text)
    assert (written.last["message"], written.last["text"]) == (event, text)


def test_collections_are_json_and_not_python() -> None:
    written = Written()
    written.log.info(
        "x", brokers=(1, 2), alive={3, 1}, sizes={"a": 1}, raw=b"ab", name=TopicPartition("t", 0)
    )
    assert written.last | {"time": ""} == {
        "time": "",
        "level": "info",
        "message": "x",
        "brokers": [1, 2],
        "alive": [1, 3],
        "sizes": {"a": 1},
        "raw": "ab",
        "name": "t-0",
    }


def test_no_color_disables_colors() -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    open_logger(BrokerConfig({"logging.format": "text"}), ManualClock(), stream, no_color=True).info("x")
    assert "\x1b" not in stream.getvalue()
