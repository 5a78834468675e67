"""Draining of the partitions that a smaller partition count removes: their writers, and the decision about their next
phase.
"""
