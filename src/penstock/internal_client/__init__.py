"""The typed client through which the gateway, the command line, pipelines and the brokers themselves send
requests.

`Routes` finds the broker for a topic partition, a group or a transactional id and keeps one connection to
each. `TopicCalls`, `ConfigCalls`, `GroupCalls`, `TransactionCalls`, `RecordCalls`, `BrokerCalls` and
`ReassignmentCalls` send requests; key and version of each API are declared beside its method.
`IdempotentProducer` writes records; `retries.py` has the retry policy.

A refused request raises BrokerError with Kafka's error code, a cluster without a reachable broker raises
`Unreachable`, and a change whose response was lost raises `OutcomeUnknown`.
"""
