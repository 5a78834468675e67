from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.gateway.gateway import RESOURCES
from penstock.gateway.http.endpoint import JSON
from penstock.gateway.http.schema import Mismatch, check, parse, with_absent

BODIES = {
    endpoint.name: schema for endpoint in RESOURCES if (schema := endpoint.bodies.get(JSON)) is not None
}
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-3, 300)
    | st.floats(-2, 2)
    | st.sampled_from(["", "a", "earliest", "YQ==", "a b"])
)


def documents(schema: Any) -> st.SearchStrategy[Any]:
    """Values near to what a schema accepts, valid and invalid."""
    if schema.get("type") == "object" and "properties" in schema:
        fields = {name: documents(inner) for name, inner in schema["properties"].items()}
        return st.fixed_dictionaries({}, optional={**fields, "unknown": leaves}) | leaves
    if schema.get("type") == "array":
        return st.lists(documents(schema["items"]), max_size=3) | leaves
    return leaves


@pytest.mark.parametrize("name", BODIES)
@settings(max_examples=50)
@given(data=st.data())
def test_validation_agrees_with_a_json_schema_validator(name: str, data: st.DataObject) -> None:
    schema = BODIES[name]
    value = data.draw(documents(schema))
    published = jsonschema.Draft202012Validator(with_absent(schema), format_checker=None)
    is_valid = published.is_valid(value)
    try:
        check(value, schema)
        is_taken = True
    except Mismatch:
        is_taken = False
    # JSON Schema accepts 1.0 as an integer; the gateway wants it written as one.
    assert is_taken == is_valid or _has_whole_float(value)
    if is_taken and not _has_whole_float(value):
        strict = jsonschema.Draft202012Validator(schema, format_checker=None)
        assert strict.is_valid(value), "what counts as absent was removed"


def test_optional_fields_that_are_null_or_empty_count_as_absent() -> None:
    body = {"user_id": "bob", "last_message_id": "", "limit": None, "wait": ""}
    check(body, BODIES["receive"])
    assert body == {"user_id": "bob"}
    message = {"messages": [{"key": "", "value": None, "partition": None, "headers": None}]}
    check(message, BODIES["produce"])
    assert message == {"messages": [{"key": "", "value": None}]}
    with pytest.raises(Mismatch):
        check({"from_user": "a", "to_user": None, "message": "c"}, BODIES["send"])


def _has_whole_float(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_whole_float, value.values()))
    if isinstance(value, list):
        return any(map(_has_whole_float, value))
    return isinstance(value, float) and value.is_integer()


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("12", {"type": "integer"}, 12),
        ("-1", {"type": "integer"}, -1),
        ("1.5", {"type": "number"}, 1.5),
        ("true", {"type": "boolean"}, True),
        ("x", {"type": "string"}, "x"),
    ],
)
def test_parameter_is_parsed_by_its_schema(text: str, schema: dict[str, str], value: object) -> None:
    assert parse(text, schema) == value


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("+1", {"type": "integer"}),
        ("1_000", {"type": "integer"}),
        ("\u0661", {"type": "integer"}),
        ("1e5", {"type": "number"}),
        ("nan", {"type": "number"}),
        ("inf", {"type": "number"}),
        ("yes", {"type": "boolean"}),
        ("0", {"type": "integer", "minimum": 1}),
        ("", {"type": "string", "minLength": 1}),
        ("9" * 5_000, {"type": "integer"}),
    ],
)
def test_parameter_of_wrong_type_is_a_mismatch(text: str, schema: dict[str, Any]) -> None:
    with pytest.raises(Mismatch):
        parse(text, schema)
