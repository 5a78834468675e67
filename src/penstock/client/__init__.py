"""The Python client: producers, consumers and administration, as plain and as `async` classes.

A thin layer over confluent-kafka; people import its names from `penstock`, which loads this package on first use, so
that starting a broker never does.
"""
