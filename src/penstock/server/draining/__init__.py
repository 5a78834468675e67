"""Partitions that a smaller partition count removes: their writers, their progress, and the next phase of each."""
