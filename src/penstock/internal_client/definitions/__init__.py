"""Definitions of a cluster as one document: read it, compare it with another one, and apply the differences.

A `DefinitionSection` is one kind of definition (topics, queues, users, ...). Internal topics, secrets and
messages are left out.
"""
