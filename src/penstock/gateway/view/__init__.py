"""The gateway's view of the cluster: figures of all topics, groups and brokers, updated by their changes."""
