"""Filter pushdown for reads of archive and log."""

from __future__ import annotations

from penstock.pipeline.archive.table_source import TableReader
from penstock.pipeline.filters import FilteringReader


class FilteringTableReader(FilteringReader, TableReader):
    """Reader of archive and log that reads only the offsets selected by the pushed filters."""
