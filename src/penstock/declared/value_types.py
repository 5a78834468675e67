"""Types of the columns for parsed values, with the names of Spark SQL."""

from __future__ import annotations

from dataclasses import dataclass

SIMPLE = ("string", "boolean", "int", "bigint", "float", "double", "binary", "date", "timestamp")
ALIASES = {
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "bool": "boolean",
    "smallint": "int",
    "tinyint": "int",
    "varchar": "string",
}
MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class Simple:
    name: str

    def ddl(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Decimal:
    precision: int = 10
    scale: int = 0

    def ddl(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class Array:
    element: ValueType

    def ddl(self) -> str:
        return f"array<{self.element.ddl()}>"


@dataclass(frozen=True, slots=True)
class Map:
    """Map with keys of type string, as in JSON and Avro."""

    value: ValueType

    def ddl(self) -> str:
        return f"map<string,{self.value.ddl()}>"


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: ValueType
    is_required: bool = False
    """True if a row in which the field is missing or null is invalid."""

    def ddl(self, between: str = " ") -> str:
        return f"{quoted(self.name)}{between}{self.type.ddl()}"


@dataclass(frozen=True, slots=True)
class Struct:
    fields: tuple[Field, ...]

    def ddl(self) -> str:
        return f"struct<{','.join(each.ddl(':') for each in self.fields)}>"


ValueType = Simple | Decimal | Array | Map | Struct


def quoted(name: str) -> str:
    """Return a column name in SQL's form, in backticks."""
    return f"`{name.replace('`', '``')}`"
