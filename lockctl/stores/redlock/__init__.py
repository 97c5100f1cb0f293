"""Redlock: locks on a majority of independent Redis servers."""

# what a run loads to take a lock, see lockctl/loading.py
IN_C = "_sha1"
PATH = (
    "locks wire wire.deadline locks.native stores.redis stores.redis.layout stores.redis.scripts wire.tls_settings"
    " wire.stream stores.redis.address stores.redis.errors wire.resp stores.redis.session stores.redis.lock wire.race"
    " stores.redlock.rounds stores.redlock.nodes stores.redlock.tally stores.redlock.lock"
)
RECORDS = "stores.redis.records stores.redlock.records"
LOOK = (
    "json_text history locks.inspect stores.redis.inspect stores.redis.records stores.redlock.records"
    " stores.redlock.inspect"
)
