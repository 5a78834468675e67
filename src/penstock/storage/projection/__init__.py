"""Projections: a log with some records left out, and the index of the records that stay."""
