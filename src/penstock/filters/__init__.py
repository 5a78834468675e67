"""Filters of views: CEL expressions over the records of a batch."""
