"""PostgreSQL: advisory locks."""

# what a run loads to take a lock, see lockctl/loading.py
PATH = (
    "locks wire wire.deadline locks.native stores.postgresql.layout wire.tls_settings stores.postgresql.address"
    " stores.postgresql.session stores.postgresql.pooler stores.postgresql.scope stores.postgresql.queue wire.stream"
    " stores.postgresql.protocol stores.postgresql.tokens stores.postgresql.connection stores.postgresql.claim"
    " stores.postgresql.lock"
)
RECORDS = "stores.postgresql.records"
LOOK = "json_text history locks.inspect stores.postgresql.records stores.postgresql.inspect"
