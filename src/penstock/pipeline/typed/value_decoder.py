"""Decoder of record values to typed columns, with the reason for each value that does not match its schema.

Arrow parses whole batches of plain JSON, whose dates and times have the usual form; the rules of a JSON Schema are
checked before. If Arrow cannot parse a value, the batch is decoded row by row, which gives the same columns, and
reasons for invalid rows.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from penstock.declared.value_schema import AVRO, ValueSchema
from penstock.declared.value_types import Array, Field, Simple, Struct, ValueType
from penstock.pipeline.typed.arrow_types import arrow_type, value_fields
from penstock.pipeline.typed.conversion import BadValue, converter

NO_VALUE = "the record has no value"
MAX_REASON = 500
_PREFIX_BYTES = 5
_TEXTS = frozenset({"date", "timestamp"})
_DATE = r"^[12]\d{3}-\d{2}-\d{2}$"
_TIME = r"^[12]\d{3}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{3}|\.\d{6})?(Z|[+-]\d{2}:\d{2})$"
"""Usual form of a time in JSON. Other forms are decoded row by row: a time without a zone, or a year that Python and
Arrow interpret differently.
"""
_PARSED_BY_ARROW = frozenset({"string", "boolean", "int", "bigint", "float", "double"})


class ValueDecoder:
    def __init__(self, schema: ValueSchema) -> None:
        self._schema = schema
        self._fields = value_fields(schema)
        self._convert = converter(Struct(schema.fields))
        self._check = _validator(schema)
        self._parse = _avro_parser(schema) if schema.encoding == AVRO else _json_parser(self._check)
        is_plain = schema.encoding != AVRO and all(
            _is_plain(each.type) or _is_text(each.type) for each in schema.fields
        )
        self._plain = pa.schema([_parsed(each) for each in schema.fields]) if is_plain else None

    @property
    def fields(self) -> list[pa.Field]:
        return self._fields

    def decode(self, values: pa.Array) -> list[pa.Array]:
        """Decode values into one column for each of `fields`; the last column contains the reasons of invalid
        values.
        """
        found = self._decode_plain(values) if self._plain is not None and len(values) else None
        return self._decode_rows(values.to_pylist()) if found is None else found

    def _decode_plain(self, values: pa.Array) -> list[pa.Array] | None:
        """Columns of values that Arrow can parse as lines of JSON; None if the batch has to be decoded row by row."""
        if values.null_count or not pc.all(pc.starts_with(values, "{")).as_py():
            return None
        if self._check is not None and not self._are_valid(values.to_pylist()):
            return None
        try:
            values.cast(pa.string())  # checks that the values are UTF-8, which the parser does not
        except pa.ArrowInvalid:
            return None
        lines = b"\n".join(values.to_pylist())
        if lines.count(b"\n") != len(values) - 1 or b"\r" in lines:
            return None
        options = pj.ParseOptions(explicit_schema=self._plain, unexpected_field_behavior="ignore")
        reading = pj.ReadOptions(use_threads=False, block_size=max(1 << 20, 4 * len(lines) + 1))
        try:
            table = pj.read_json(pa.py_buffer(lines), reading, options)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        if table.num_rows != len(values):
            return None
        try:
            columns = [_whole(table.column(each.name), arrow_type(each.type)) for each in self._schema.fields]
        except pa.ArrowInvalid:
            return None
        if any(
            field.is_required and column.null_count
            for field, column in zip(self._schema.fields, columns, strict=True)
        ):
            return None
        return [*columns, pa.nulls(len(values), pa.string())]

    def _are_valid(self, values: Iterable[bytes]) -> bool:
        """Return True if all values match the JSON Schema. If not, decoding row by row finds the reasons."""
        assert self._check is not None
        decode = msgspec.json.Decoder().decode
        try:
            return all(self._check.is_valid(decode(value)) for value in values)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False

    def _decode_rows(self, values: Iterable[bytes | None]) -> list[pa.Array]:
        rows: list[dict[str, Any]] = []
        reasons: list[str | None] = []
        for value in values:
            try:
                if value is None:
                    raise BadValue(NO_VALUE)
                rows.append(self._convert(self._parse(value)))
                reasons.append(None)
            except BadValue as error:
                rows.append({})
                reasons.append(str(error).removeprefix(".")[:MAX_REASON])
        columns = [
            pa.array([row.get(field.name) for row in rows], arrow_type(field.type))
            for field in self._schema.fields
        ]
        return [*columns, pa.array(reasons, pa.string())]


def _is_plain(kind: ValueType) -> bool:
    """Return True if Arrow parses the type with the same result as the conversion row by row."""
    if isinstance(kind, Array):
        return _is_plain(kind.element)
    if isinstance(kind, Struct):
        return all(_is_plain(each.type) and not each.is_required for each in kind.fields)
    return isinstance(kind, Simple) and kind.name in _PARSED_BY_ARROW


def _is_text(kind: ValueType) -> bool:
    """Return True if Arrow parses the type as text, which `_whole` converts to a date or time."""
    return isinstance(kind, Simple) and kind.name in _TEXTS


def _parsed(field: Field) -> pa.Field:
    return pa.field(field.name, pa.string() if _is_text(field.type) else arrow_type(field.type))


def _whole(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Convert a column to an array of this type. Raises ArrowInvalid for dates and times that have to be decoded row by
    row.
    """
    found = column.combine_chunks()
    array = found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)
    if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return array.cast(kind)
    form = _DATE if pa.types.is_date(kind) else _TIME
    if pc.all(pc.match_substring_regex(array, form)).as_py() is False:
        raise pa.ArrowInvalid("not in the usual form")
    return array.cast(kind)


def _validator(schema: ValueSchema) -> Any:
    """Validator of a JSON Schema; None for other schemas."""
    if schema.document is None or schema.encoding == AVRO:
        return None
    import jsonschema_rs

    return jsonschema_rs.validator_for(json.dumps(schema.document))


def _json_parser(check: Any) -> Callable[[bytes], Any]:
    decoder = msgspec.json.Decoder()

    def parse(value: bytes) -> Any:
        try:
            found = decoder.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadValue(f"not valid JSON: {error}") from None
        if check is not None and not check.is_valid(found):
            for problem in check.iter_errors(found):
                where = ".".join(map(str, problem.instance_path))
                raise BadValue(f"{where}: {problem.message}" if where else problem.message)
        return found

    return parse


def _avro_parser(schema: ValueSchema) -> Callable[[bytes], Any]:
    import fastavro

    parsed = fastavro.parse_schema(dict(schema.document or {}))

    def read(value: bytes) -> Any:
        source = io.BytesIO(value)
        found = fastavro.schemaless_reader(source, parsed, None)
        if source.tell() != len(value):
            raise ValueError(f"{len(value) - source.tell()} bytes are left over")
        return found

    def parse(value: bytes) -> Any:
        # Schema registries put a zero byte and a schema id of four bytes before the Avro record.
        forms = (value, value[_PREFIX_BYTES:]) if value[:1] == b"\0" else (value,)
        problem = ""
        for form in forms:
            try:
                return read(form)
            except Exception as error:  # noqa: BLE001 - fastavro raises many kinds for malformed bytes
                problem = problem or str(error) or type(error).__name__
        raise BadValue(f"not valid Avro: {problem}")

    return parse
