"""The gateway's view of the cluster: figures of all topics, groups and brokers, kept up to date by changes."""
