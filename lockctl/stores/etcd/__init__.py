"""etcd: locks by leases, as ``etcdctl lock`` has them, and cells in keys."""
