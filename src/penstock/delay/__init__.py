"""Delayed messages: their headers, and the records of a partition that are not due yet. No input or output."""
