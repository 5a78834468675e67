from __future__ import annotations

import pytest

from penstock.config import (
    HTTP_PORT,
    MAX_CONNECTIONS,
    NUM_PARTITIONS,
    PORT,
    RETENTION_MS,
    BrokerConfig,
    TopicConfig,
)
from penstock.config.loading import environment_variable, load_broker_config, parse_assignments, parse_file
from penstock.errors import ConfigError


def retention(config: BrokerConfig) -> int:
    return TopicConfig(config)[RETENTION_MS]


def test_each_source_overrides_the_previous_one() -> None:
    loaded = load_broker_config(
        file=("broker.properties", "port=1\nhttp.port=1\nnum.partitions=1\nlog.retention.ms=1"),
        environment={"PENSTOCK_HTTP_PORT": "2", "PENSTOCK_NUM_PARTITIONS": "2"},
        command_line={"num.partitions": "3"},
    )
    config = loaded.config
    assert (config[PORT], config[HTTP_PORT], config[NUM_PARTITIONS], retention(config)) == (1, 2, 3, 1)
    assert loaded.places == {
        "port": "broker.properties",
        "http.port": "environment",
        "num.partitions": "command line",
        "log.retention.ms": "broker.properties",
    }


def test_a_properties_file_has_comments_blank_lines_and_spaces() -> None:
    content = "# comment\n! comment\n\n  port = 9093 \nadvertised.listeners=PLAINTEXT://a:1\n"
    assert parse_file("broker.properties", content) == {
        "port": "9093",
        "advertised.listeners": "PLAINTEXT://a:1",
    }


def test_a_toml_file_takes_quoted_names_and_tables() -> None:
    content = """
        "max.connections" = 10
        "max.connections.per.ip" = 5
        "auto.create.topics.enable" = false
        [log]
        "retention.ms" = 60000
        cleanup.policy = ["compact", "delete"]
    """
    assert parse_file("broker.toml", content) == {
        "max.connections": "10",
        "max.connections.per.ip": "5",
        "auto.create.topics.enable": "false",
        "log.retention.ms": "60000",
        "log.cleanup.policy": "compact,delete",
    }


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "broker.properties",
            "port=1\njust words",
            r"broker\.properties, line 2: 'just words' is not name=value",
        ),
        ("broker.toml", "max.connections = 1\nmax.connections.per.ip = 2", r"write names in quotes"),
        ("broker.toml", '"port" = "many"', r"broker\.toml: port='many': give a whole number from 0 to 65535"),
        ("broker.toml", '"prot" = 1', r"broker\.toml: 'prot' is not a broker setting; did you mean port\?"),
    ],
)
def test_an_error_in_a_file_names_the_file(name: str, content: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_broker_config(file=(name, content))


def test_an_error_in_the_environment_says_so() -> None:
    with pytest.raises(
        ConfigError, match=r"^environment: 'log\.retention\.mss' is not .* log\.retention\.ms\?"
    ):
        load_broker_config(environment={"PENSTOCK_LOG_RETENTION_MSS": "1"})


def test_variables_that_are_not_broker_options_are_ignored() -> None:
    environment = {
        "PATH": "/bin",
        "PENSTOCK_BOOTSTRAP": "somewhere:9092",
        "PENSTOCK_SERVICE_HOST": "10.0.0.1",
        "PENSTOCK_SERVICE_PORT": "9092",
        "PENSTOCK_SERVICE_PORT_KAFKA": "9092",
        "PENSTOCK_PORT": "tcp://10.0.0.1:9092",
        "PENSTOCK_PORT_9092_TCP_ADDR": "10.0.0.1",
    }
    assert dict(load_broker_config(environment=environment).config.static) == {}


def test_the_variable_of_an_option_sets_it() -> None:
    variable = environment_variable("max.connections")
    assert load_broker_config(environment={variable: "7"}).config[MAX_CONNECTIONS] == 7


def test_assignments_split_at_the_first_equals_sign() -> None:
    assert parse_assignments(["log.dir=a=b", " port = 1"]) == {"log.dir": "a=b", "port": "1"}


@pytest.mark.parametrize("text", ["port", "=1"])
def test_an_assignment_without_a_name_or_equals_sign_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write name=value"):
        parse_assignments([text])


def test_contradicting_values_of_two_sources_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"message\.max\.bytes=3000000"):
        load_broker_config(
            file=("a.properties", "message.max.bytes=3000000"),
            command_line={"socket.request.max.bytes": "2000000"},
        )


def test_consistent_values_may_contradict_defaults() -> None:
    settings = {"socket.request.max.bytes": "500000", "message.max.bytes": "400000"}
    assert load_broker_config(command_line=settings).config.static["message.max.bytes"] == "400000"
