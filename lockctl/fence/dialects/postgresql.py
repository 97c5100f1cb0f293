"""Marks in a table of PostgreSQL: see ``lockctl.fence.sql``."""

from __future__ import annotations

TEXT = """\
-- Marks of resources in PostgreSQL, which only rise: see lockctl-fencing(7).
-- May be run as it is, and again:  lockctl fence sql --dialect postgresql | psql -1 -d DATABASE -f -
-- What stands behind "--     " is for you to copy: stock stands for your table.
-- All names have their schema (another one: fence sql --schema NAME, and ?schema=NAME in URLs), so that no search_path
-- and no temporary table of whoever writes leads to another mark.

-- One row for each resource: the highest token that it has seen, and the counter that this comes from.
CREATE TABLE IF NOT EXISTS <schema>.lockctl_mark (
    resource text PRIMARY KEY,
    domain text NOT NULL CHECK (domain <> ''),
    token bigint NOT NULL CHECK (token > 0)
);

-- What the trigger below calls, with the name of a resource. The row of the mark stays locked until the transaction
-- has ended, so READ COMMITTED is enough, and those who write the same resource do so one after another.
-- It has the rights of the owner of the mark: those who only write your table need none on the mark, and cannot lower
-- it. Whoever may make a trigger of it can raise every mark: nobody may but its owner, unless you grant it.
CREATE OR REPLACE FUNCTION <schema>.lockctl_fence() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    own_domain text := coalesce(pg_catalog.current_setting('lockctl.token_domain', true), '');
    own_token text := coalesce(pg_catalog.current_setting('lockctl.token', true), '');
    seen record;
BEGIN
    IF own_domain = '' OR own_token !~ '^[0-9]{1,19}$' THEN
        RAISE EXCEPTION '% refuses a change without a fencing token', TG_ARGV[0]
            USING ERRCODE = '55000', HINT = 'run it under: lockctl run --fence postgresql://...';
    END IF;
    INSERT INTO <schema>.lockctl_mark AS mark (resource, domain, token)
    VALUES (TG_ARGV[0], own_domain, own_token::bigint)
    ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token
        WHERE mark.domain = EXCLUDED.domain AND mark.token < EXCLUDED.token;
    SELECT mark.domain, mark.token INTO STRICT seen FROM <schema>.lockctl_mark AS mark
    WHERE mark.resource = TG_ARGV[0];
    IF seen.domain <> own_domain THEN
        RAISE EXCEPTION '% refuses token %: its mark is of another domain, % and not %',
            TG_ARGV[0], own_token, seen.domain, own_domain USING ERRCODE = '55000';
    ELSIF seen.token <> own_token::bigint THEN
        RAISE EXCEPTION '% refuses token %: it has already seen token %', TG_ARGV[0], own_token, seen.token
            USING ERRCODE = '55000';
    END IF;
    RETURN NULL;
END
$body$;
REVOKE EXECUTE ON FUNCTION <schema>.lockctl_fence() FROM PUBLIC;
-- Not those of an administrator who runs this where somebody else made the table, and may have made triggers on it.
DO $body$
BEGIN
    EXECUTE pg_catalog.format('ALTER FUNCTION %s.lockctl_fence() OWNER TO %I', $name$<schema>$name$,
        (SELECT pg_catalog.pg_get_userbyid(relowner) FROM pg_catalog.pg_class
         WHERE oid = pg_catalog.format('%s.lockctl_mark', $name$<schema>$name$)::pg_catalog.regclass::pg_catalog.oid));
END
$body$;

-- The rights of other users, called lockctl here: on the mark for 2., `lockctl run --fence` and `lockctl fence`, on the
-- function for CREATE TRIGGER on their own tables. Whoever has those on the mark can also lower it: if a program is not
-- to be trusted with that, have it write as another user than the URL of --fence names (PGUSER).
--     GRANT USAGE ON SCHEMA <schema> TO lockctl;
--     GRANT SELECT, INSERT, UPDATE ON <schema>.lockctl_mark TO lockctl;
--     GRANT EXECUTE ON FUNCTION <schema>.lockctl_fence() TO lockctl;

-- 1. A program that cannot be changed. The trigger refuses it without a current token, which PGOPTIONS brings:
-- `lockctl run --fence 'postgresql://user@host/database?resource=stock' -- program` sets this and advances the mark.
-- A pooler refuses PGOPTIONS: there a program must begin each transaction with SET LOCAL lockctl.token and
-- lockctl.token_domain. The owner of the table can drop the trigger, and may read without any token. Whoever may write
-- can also bring a huge token, which keeps all others out, until `lockctl fence reset` sets the mark anew.
-- The trigger is for statements that name its table: a partition, or a table that inherits from it, needs its own.
--     DROP TRIGGER IF EXISTS lockctl_fence ON stock;
--     CREATE TRIGGER lockctl_fence BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON stock
--         FOR EACH STATEMENT EXECUTE FUNCTION <schema>.lockctl_fence('<resource>');

-- 2. A program that checks by itself: alone, and committed, before its first read (advance); and again as the first
-- statement of each transaction that writes (check). No row comes back: stale, so ROLLBACK. In place of the two
-- settings pass $LOCKCTL_TOKEN_DOMAIN and $LOCKCTL_TOKEN as parameters.
--     INSERT INTO <schema>.lockctl_mark AS mark (resource, domain, token)
--     VALUES ('<resource>', current_setting('lockctl.token_domain'), current_setting('lockctl.token')::bigint)
--     ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token
--         WHERE mark.domain = EXCLUDED.domain AND mark.token <= EXCLUDED.token
--     RETURNING mark.token;

-- 3. A row that has its mark in columns of its own: for work that is one row. First before the row is read, then with
-- each change. 0 rows updated: stale, or there is no such row.
--     ALTER TABLE stock ADD COLUMN IF NOT EXISTS fence_domain text, ADD COLUMN IF NOT EXISTS fence_token bigint;
--     UPDATE stock SET fence_domain = current_setting('lockctl.token_domain'),
--         fence_token = current_setting('lockctl.token')::bigint
--     WHERE id = 1 AND (fence_token IS NULL OR (fence_domain = current_setting('lockctl.token_domain')
--         AND fence_token <= current_setting('lockctl.token')::bigint));
--     UPDATE stock SET amount = amount - 1
--     WHERE id = 1 AND fence_domain = current_setting('lockctl.token_domain')
--         AND fence_token = current_setting('lockctl.token')::bigint;
"""
