"""Projections: a log as seen through a filter, and the index of the records that match."""
