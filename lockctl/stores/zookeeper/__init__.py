"""ZooKeeper: locks by ephemeral nodes, as kazoo and Curator have them, and cells in nodes."""
