"""Marks in a table of SQLite: see ``lockctl.fence.sql``."""

from __future__ import annotations

TEXT = """\
-- Marks of resources in SQLite, which only rise: see lockctl-fencing(7).
-- May be run as it is, and again:  lockctl fence sql --dialect sqlite | sqlite3 FILE
-- What stands behind "--     " is for you to copy: stock stands for your table, and :domain and :token for the
-- parameters $LOCKCTL_TOKEN_DOMAIN and $LOCKCTL_TOKEN, the latter as a number.

-- One row for each resource: the highest token that it has seen, and the counter that this comes from.
CREATE TABLE IF NOT EXISTS lockctl_mark (
    resource TEXT PRIMARY KEY NOT NULL,
    domain TEXT NOT NULL,
    token INTEGER NOT NULL CHECK (token > 0)
);

-- For the triggers below: the token of the transaction under way, and no row between transactions.
CREATE TABLE IF NOT EXISTS lockctl_own (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    domain TEXT NOT NULL,
    token INTEGER NOT NULL CHECK (token > 0)
);

-- 1. A program that checks by itself: alone, and committed, before its first read (advance); and again as the first
-- statements of each transaction that writes (check). 0 rows changed: stale, so ROLLBACK. Without IMMEDIATE a
-- transaction begins by reading, and what it has read may be old when it writes.
--     BEGIN IMMEDIATE;
--     INSERT INTO lockctl_mark (resource, domain, token) VALUES ('<resource>', :domain, :token)
--     ON CONFLICT (resource) DO UPDATE SET token = excluded.token
--         WHERE domain = excluded.domain AND token <= excluded.token;
--     COMMIT;

-- 2. Triggers that refuse changes of whoever forgets this. SQLite has neither users nor settings of a connection, so a
-- token can only reach a trigger as a row of a table, which the program must write: one that knows nothing of tokens
-- is kept out, and cannot be let in. The row must be gone before COMMIT: one that was left is believed for whoever
-- writes next, as long as its token is current. Whoever can write the file can also drop the triggers.
--     CREATE TRIGGER IF NOT EXISTS stock_lockctl_insert BEFORE INSERT ON stock BEGIN
--         SELECT RAISE(ABORT, '<resource> refuses a change without a current fencing token') WHERE NOT EXISTS
--             (SELECT 1 FROM lockctl_own AS own JOIN lockctl_mark AS mark USING (domain, token)
--              WHERE mark.resource = '<resource>');
--     END;
--     CREATE TRIGGER IF NOT EXISTS stock_lockctl_update BEFORE UPDATE ON stock BEGIN
--         SELECT RAISE(ABORT, '<resource> refuses a change without a current fencing token') WHERE NOT EXISTS
--             (SELECT 1 FROM lockctl_own AS own JOIN lockctl_mark AS mark USING (domain, token)
--              WHERE mark.resource = '<resource>');
--     END;
--     CREATE TRIGGER IF NOT EXISTS stock_lockctl_delete BEFORE DELETE ON stock BEGIN
--         SELECT RAISE(ABORT, '<resource> refuses a change without a current fencing token') WHERE NOT EXISTS
--             (SELECT 1 FROM lockctl_own AS own JOIN lockctl_mark AS mark USING (domain, token)
--              WHERE mark.resource = '<resource>');
--     END;
-- and in the program, with 1. between the first line and the second:
--     BEGIN IMMEDIATE;
--     INSERT INTO lockctl_own (only, domain, token) VALUES (1, :domain, :token);
--     UPDATE stock SET amount = amount - 1 WHERE id = 1;
--     DELETE FROM lockctl_own;
--     COMMIT;

-- 3. A row that has its mark in columns of its own: for work that is one row. First before the row is read, then with
-- each change. 0 rows changed: stale, or there is no such row.
--     ALTER TABLE stock ADD COLUMN fence_domain TEXT;
--     ALTER TABLE stock ADD COLUMN fence_token INTEGER;
--     UPDATE stock SET fence_domain = :domain, fence_token = :token
--     WHERE id = 1 AND (fence_token IS NULL OR (fence_domain = :domain AND fence_token <= :token));
--     UPDATE stock SET amount = amount - 1
--     WHERE id = 1 AND fence_domain = :domain AND fence_token = :token;
"""
