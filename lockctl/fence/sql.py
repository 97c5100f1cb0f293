"""SQL for programs that keep their marks in the database of their data: what ``lockctl fence sql`` prints.

What stands in comments behind ``--     `` is to be copied into programs and changed there; the rest is run as it is.
The stores of ``lockctl.fence.stores`` use the same table.
"""

from __future__ import annotations

from lockctl.errors import UsageError
from lockctl.fence.places import check_name
from lockctl.names import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.fence.mark import Mark

TABLE = "lockctl_mark"
SCHEMA = "public"  # of PostgreSQL, where the table is unless another one is named
LONGEST_SCHEMA = 63  # bytes: PostgreSQL cuts what is longer
EXAMPLE = "stock"  # the resource, and the table of the user, in what is printed

POSTGRESQL = """\
-- Marks of resources in PostgreSQL, which only rise: see lockctl-fencing(7).
-- May be run as it is, and again:  lockctl fence sql --dialect postgresql | psql -d DATABASE
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
CREATE OR REPLACE FUNCTION <schema>.lockctl_fence() RETURNS trigger LANGUAGE plpgsql
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

-- The rights that other users need for all of this:
--     GRANT SELECT, INSERT, UPDATE ON <schema>.lockctl_mark TO PUBLIC;

-- 1. A program that cannot be changed. The trigger refuses it without a current token, which PGOPTIONS brings:
-- `lockctl run --fence 'postgresql://user@host/database?resource=stock' -- program` sets this and advances the mark.
-- A pooler refuses PGOPTIONS: there a program must begin each transaction with SET LOCAL lockctl.token and
-- lockctl.token_domain. The owner of the table can drop the trigger, and may read without any token.
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

MYSQL = """\
-- Marks of resources in MySQL and MariaDB, which only rise: see lockctl-fencing(7).
-- May be run as it is, and again:  lockctl fence sql --dialect mysql | mariadb DATABASE
-- What stands behind "--     " is for you to copy: stock stands for your table.

-- One row for each resource: the highest token that it has seen, and the counter that this comes from.
CREATE TABLE IF NOT EXISTS lockctl_mark (
    resource VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    domain VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    token BIGINT NOT NULL,
    CHECK (token > 0)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- What the triggers below call, with the name of a resource. The row of the mark stays locked until the transaction
-- has ended, so those who write the same resource do so one after another.
DROP PROCEDURE IF EXISTS lockctl_fence;
DELIMITER //
CREATE PROCEDURE lockctl_fence(IN fenced VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
MODIFIES SQL DATA
BEGIN
    DECLARE own_domain VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT COALESCE(@lockctl_domain, '');
    DECLARE own_text VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT COALESCE(@lockctl_token, '');
    DECLARE own_token, seen_token BIGINT;
    DECLARE seen_domain VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE refusal VARCHAR(128) CHARACTER SET utf8mb4 DEFAULT NULL;
    IF own_domain = '' OR NOT own_text REGEXP '^[0-9]{1,19}$'
            OR CAST(own_text AS DECIMAL(20)) NOT BETWEEN 1 AND 9223372036854775807 THEN
        SET refusal = CONCAT(LEFT(fenced, 60), ' refuses a change without a fencing token');
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = refusal;
    END IF;
    SET own_token = CAST(own_text AS SIGNED);
    INSERT INTO lockctl_mark (resource, domain, token) VALUES (fenced, own_domain, own_token)
        ON DUPLICATE KEY UPDATE token = IF(domain = VALUES(domain) AND token < VALUES(token), VALUES(token), token);
    SELECT domain, token INTO seen_domain, seen_token FROM lockctl_mark WHERE resource = fenced FOR UPDATE;
    IF seen_domain <> own_domain THEN
        SET refusal = LEFT(CONCAT(LEFT(fenced, 60), ' refuses token ', own_token,
            ': its mark is of another domain, ', seen_domain), 128);
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = refusal;
    ELSEIF seen_token <> own_token THEN
        SET refusal = CONCAT(LEFT(fenced, 40), ' refuses token ', own_token,
            ': it has already seen token ', seen_token);
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = refusal;
    END IF;
END//
DELIMITER ;

-- 1. A program whose statements cannot be changed. The triggers refuse it without a current token, which its
-- connection must bring: as the init command of its driver, or of the client:
--   mariadb --init-command="SET @lockctl_token = '$LOCKCTL_TOKEN', @lockctl_domain = '$LOCKCTL_TOKEN_DOMAIN'"
-- The variable init_connect of the server cannot bring it: it is the same for all, and a token is one holder's.
-- TRUNCATE, and what a foreign key deletes or updates by CASCADE, passes no trigger of MySQL.
-- A temporary table hides the table of the same name from a session, also in what this session's triggers call: whoever
-- must not be able to get around the mark must not have the right CREATE TEMPORARY TABLES in this database.
--     DROP TRIGGER IF EXISTS stock_lockctl_insert;
--     DROP TRIGGER IF EXISTS stock_lockctl_update;
--     DROP TRIGGER IF EXISTS stock_lockctl_delete;
--     CREATE TRIGGER stock_lockctl_insert BEFORE INSERT ON stock FOR EACH ROW CALL lockctl_fence('<resource>');
--     CREATE TRIGGER stock_lockctl_update BEFORE UPDATE ON stock FOR EACH ROW CALL lockctl_fence('<resource>');
--     CREATE TRIGGER stock_lockctl_delete BEFORE DELETE ON stock FOR EACH ROW CALL lockctl_fence('<resource>');

-- 2. A program that checks by itself: alone, and committed, before its first read (advance); and again as the first
-- statements of each transaction that writes (check). The SELECT gives no row: stale, so ROLLBACK. In place of the
-- two variables pass $LOCKCTL_TOKEN_DOMAIN and $LOCKCTL_TOKEN as parameters.
--     START TRANSACTION;
--     INSERT INTO lockctl_mark (resource, domain, token)
--     VALUES ('<resource>', @lockctl_domain, CAST(@lockctl_token AS SIGNED))
--     ON DUPLICATE KEY UPDATE token = IF(domain = VALUES(domain) AND token < VALUES(token), VALUES(token), token);
--     SELECT token FROM lockctl_mark
--     WHERE resource = '<resource>' AND domain = @lockctl_domain AND token = CAST(@lockctl_token AS SIGNED) FOR UPDATE;
--     COMMIT;

-- 3. A row that has its mark in columns of its own: for work that is one row. First before the row is read, then with
-- each change. 0 rows matched: stale, or there is no such row. (Without CLIENT_FOUND_ROWS a driver counts the rows
-- that became different, which may be none when all is well.)
--     ALTER TABLE stock ADD COLUMN fence_domain VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
--         ADD COLUMN fence_token BIGINT;
--     UPDATE stock SET fence_domain = @lockctl_domain, fence_token = CAST(@lockctl_token AS SIGNED)
--     WHERE id = 1 AND (fence_token IS NULL
--         OR (fence_domain = @lockctl_domain AND fence_token <= CAST(@lockctl_token AS SIGNED)));
--     UPDATE stock SET amount = amount - 1
--     WHERE id = 1 AND fence_domain = @lockctl_domain AND fence_token = CAST(@lockctl_token AS SIGNED);
"""

SQLITE = """\
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

DIALECTS = {"mysql": MYSQL, "postgresql": POSTGRESQL, "sqlite": SQLITE}


def text(dialect: str, resource: str | None = None, schema: str | None = None) -> str:
    """The table, and how to advance, to check and to refuse, in a dialect of ``DIALECTS``; ends with a newline.

    *resource* is the name that stands in the statements, ``stock`` if it is not given. *schema*, of PostgreSQL, is
    where table and function are, ``SCHEMA`` if it is not given. Raises ``UsageError``.
    """
    if dialect not in DIALECTS:
        message = f"no SQL for {printable(dialect)!r}; there are: {', '.join(sorted(DIALECTS))}"
        raise UsageError(message)
    if schema is not None and dialect != "postgresql":
        message = f"--schema is for postgresql: in {dialect} the marks are in the database that runs this"
        raise UsageError(message)
    where = SCHEMA if schema is None else _identifier(schema)
    name = EXAMPLE if resource is None else check_name(resource)
    return DIALECTS[dialect].replace("<schema>", where).replace("<resource>", _quoted(dialect, name))


def pgoptions(mark: Mark, before: str) -> str:
    r"""``$PGOPTIONS`` with the settings that the trigger reads, for a program that uses libpq.

    What *before* says stays; of two settings of one name the server believes the last. A blank or a backslash in a
    value has a backslash before it, as the server wants (``pg_split_opts``).
    """
    stem = before.rstrip("\\")
    if (len(before) - len(stem)) % 2:
        before = before[:-1]  # it would keep our first blank from being one
    domain = "".join(f"\\{char}" if char == "\\" or char.isspace() else char for char in mark.domain)
    ours = f"-c lockctl.token={mark.token} -c lockctl.token_domain={domain}"
    return f"{before} {ours}" if before else ours


def _identifier(schema: str) -> str:
    """The name of a schema as SQL has it. Raises ``UsageError``."""
    too_long = len(schema.encode("utf-8", "surrogatepass")) > LONGEST_SCHEMA
    if not schema or too_long or not schema.isprintable() or "$" in schema:  # "$" could end the body of the function
        message = (
            f"{printable(schema[:40])!r} cannot name a schema: 1 to {LONGEST_SCHEMA} bytes of printable text, no $"
        )
        raise UsageError(message)
    return '"' + schema.replace('"', '""') + '"'


def _quoted(dialect: str, name: str) -> str:
    """What stands between the quotes of a literal."""
    name = name.replace("'", "''")
    return name.replace("\\", "\\\\") if dialect == "mysql" else name
