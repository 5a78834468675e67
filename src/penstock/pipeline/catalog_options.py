"""Options of `create table ... using penstock`, which is a table of Spark's catalog.

Spark passes the options of the statement to `schema()` only, not to the readers and writers of the table. `schema()`
therefore stores them in the metadata of the columns, which Spark keeps and passes to readers and writers. The same
options are used for reading and for writing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructType

_STORED = "penstock.options"
"""Metadata key of the columns of a table, whose value is the table's options as JSON."""

_OF_CATALOG = frozenset(
    (
        "provider",
        "location",
        "is_managed_location",
        "external",
        "owner",
        "comment",
        "collation",
        "serialization.format",
    )
)
_CATALOG_PREFIX = "option."
"""Prefix of the table's options among the properties that Spark's catalog passes."""


def is_of_catalog(given: Mapping[str, str]) -> bool:
    """Return True if the options are those of a table in Spark's catalog."""
    return "provider" in {name.lower() for name in given}


def without_catalog(given: Mapping[str, str]) -> dict[str, str]:
    """Options by lower-case name, without the properties that Spark's catalog adds, and without the prefix under which
    the catalog repeats the options of the table.
    """
    options = {name.lower(): value for name, value in given.items()}
    stored = {
        name.removeprefix(_CATALOG_PREFIX): value
        for name, value in options.items()
        if name.startswith(_CATALOG_PREFIX)
    }
    plain = {name: value for name, value in options.items() if not name.startswith(_CATALOG_PREFIX)}
    return {name: value for name, value in {**stored, **plain}.items() if name not in _OF_CATALOG}


def with_options(schema: StructType, given: Mapping[str, str]) -> StructType:
    """Store the options of a table of the catalog in the metadata of its columns."""
    text = json.dumps({**without_catalog(given), "provider": "penstock"})
    for field in schema.fields:
        field.metadata = {_STORED: text}
    return schema


def all_options(schema: StructType, given: Mapping[str, str]) -> dict[str, str]:
    """Options of a read or write, completed by the stored options of a table of the catalog; those of the read or write
    take precedence.
    """
    for field in schema.fields:
        if (text := field.metadata.get(_STORED)) is not None:
            return {**json.loads(text), **{name.lower(): value for name, value in given.items()}}
    return dict(given)
