"""Delayed messages: their headers, and the pending messages of a partition. No input or output."""
