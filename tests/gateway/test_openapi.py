"""The OpenAPI document is true: every documented request gets a documented response, and none an internal
error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from served import client_of, serving

from penstock.gateway.gateway import RESOURCES
from penstock.gateway.http.page import example
from support.broker_process import BrokerProcess

pytestmark = pytest.mark.filterwarnings("ignore")
CHECKS = (
    not_a_server_error,
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
TOO_LARGE = (413, 414, 431)
NOT_CHECKED = {"requestFromQueue": (*TOO_LARGE, 504)}
"""Statuses by endpoint, where they are more than TOO_LARGE: a request to a queue without consumers gets no reply."""
STREAMS = {"readTopicEvents", "receiveEvents", "live", "searchMessages"}
"""Endpoints whose responses do not end."""


@pytest.fixture(scope="module")
def broker(starts_processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = (
        "durability=os",
        "gateway.max.wait.ms=20",
        "offsets.topic.num.partitions=2",
        "num.partitions=2",
    )
    with serving(tmp_path_factory.mktemp("openapi"), settings) as process:
        with client_of(process) as http:
            http.post("/v1/topics", json={"name": "a", "partitions": 2}).raise_for_status()
        yield process


@pytest.fixture(scope="module")
def document(broker: BrokerProcess) -> Any:
    with client_of(broker) as http:
        return http.get("/openapi.json").json()


@pytest.fixture(scope="module")
def interface(broker: BrokerProcess, document: Any) -> Any:
    kept = {
        path: {method: each for method, each in operations.items() if each["operationId"] not in STREAMS}
        for path, operations in document["paths"].items()
    }
    loaded = schemathesis.openapi.from_dict(
        document | {"paths": {path: each for path, each in kept.items() if each}}
    )
    loaded.config.update(base_url=f"http://127.0.0.1:{broker.http_port}")
    return loaded


@pytest.mark.drawn
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("name", [each.name for each in RESOURCES if each.name not in STREAMS])
def test_every_endpoint_responds_as_documented(interface: Any, name: str, mode: GenerationMode) -> None:
    operation = interface.find_operation_by_id(name)
    try:
        strategy = operation.as_strategy(generation_mode=mode)

        @settings(max_examples=5, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(strategy)
        def ask(case: Any) -> None:
            response = case.call(timeout=30)
            if response.status_code not in NOT_CHECKED.get(name, TOO_LARGE):
                case.validate_response(response, checks=CHECKS)

        ask()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE, "what is right can be asked for"


def test_every_served_path_is_documented(document: Any) -> None:
    for endpoint in RESOURCES:
        operation = document["paths"][endpoint.path][endpoint.method.lower()]
        assert operation["operationId"] == endpoint.name
    names = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(set(names)) == len(names)


def test_every_documented_path_is_served(broker: BrokerProcess, document: Any) -> None:
    with client_of(broker) as http:
        for path, operations in document["paths"].items():
            concrete = path.replace("{topic}", "a").replace("{group}", "g").replace("{broker}", "1")
            concrete = concrete.replace("{transactional_id}", "t").replace("{connection}", "1-1")
            allowed = http.options(concrete.replace("{member}", "m")).headers["allow"].split(", ")
            assert {method.upper() for method in operations} <= set(allowed)
            assert set(allowed) - {"HEAD", "OPTIONS"} == {method.upper() for method in operations}


def test_examples_on_the_page_match_their_schemas() -> None:
    for endpoint in RESOURCES:
        schemas = [*endpoint.bodies.values(), *(answer.schema for answer in endpoint.responses.values())]
        for schema in schemas:
            if schema is not None and schema.get("type") == "object":
                relaxed = {**schema, "required": []}
                jsonschema.Draft202012Validator(relaxed).validate(example(schema))


@pytest.mark.usefixtures("starts_processes")
def test_broker_without_gateway_serves_health_and_metrics_alone(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with (
        serving(tmp_path_factory.mktemp("without"), ("gateway.enable=false",)) as process,
        client_of(process) as http,
    ):
        assert http.get("/health").status_code == 200
        assert http.get("/metrics").status_code == 200
        assert http.get("/v1/topics").status_code == 404
        assert isinstance(http.post("/send", json={}), httpx.Response)
