"""ZooKeeper: cells in nodes of an ensemble."""
