"""Redis: locks by scripts on one server."""

# what a run loads to take a lock, see lockctl/loading.py
IN_C = "_sha1"
PATH = (
    "locks wire wire.deadline locks.native stores.redis.layout stores.redis.scripts wire.tls_settings wire.stream"
    " stores.redis.address stores.redis.errors wire.resp stores.redis.session stores.redis.lock"
)
RECORDS = "stores.redis.records"
LOOK = "json_text history locks.inspect stores.redis.inspect"
