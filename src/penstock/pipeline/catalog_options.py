"""Options of `create table ... using penstock`, which is a table of Spark's catalog.

Spark gives the options of the statement to `schema()` only, and none to readers and writers of the table. `schema()`
therefore stores them in the metadata of the columns, which Spark keeps and gives back. One set of options serves both
reading and writing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructType

_STORED = "penstock.options"
"""Metadata of the columns of a table: its options as JSON."""

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
"""Properties that Spark's catalog adds to the options of a table."""


def is_of_catalog(given: Mapping[str, str]) -> bool:
    """Whether the options are those of a table in Spark's catalog."""
    return "provider" in {name.lower() for name in given}


def without_catalog(given: Mapping[str, str]) -> dict[str, str]:
    """Options by lower-case name, without those that Spark's catalog adds. The catalog has the options of the table
    with a prefix.
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
    """Schema of a table of the catalog, whose columns have its options."""
    text = json.dumps({**without_catalog(given), "provider": "penstock"})
    for field in schema.fields:
        field.metadata = {_STORED: text}
    return schema


def all_options(schema: StructType, given: Mapping[str, str]) -> dict[str, str]:
    """Options of a read or write, which override those of a table of the catalog."""
    for field in schema.fields:
        if (text := field.metadata.get(_STORED)) is not None:
            return {**json.loads(text), **{name.lower(): value for name, value in given.items()}}
    return dict(given)
