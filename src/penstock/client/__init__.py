"""The Python client: producers, consumers and administration, synchronous and async.

A thin layer over confluent-kafka. Users import its names from `penstock`, which loads this package on first
use, so a broker starts without it.
"""
