"""etcd: cells in keys of a cluster."""
