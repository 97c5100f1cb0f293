"""Marks in a table of MySQL and MariaDB: see ``lockctl.fence.sql``."""

from __future__ import annotations

TEXT = """\
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

-- Domains are compared byte by byte: as texts, those that differ in blanks at their end would be the same.

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
        ON DUPLICATE KEY UPDATE token = IF(CAST(domain AS BINARY) = CAST(VALUES(domain) AS BINARY)
            AND token < VALUES(token), VALUES(token), token);
    SELECT domain, token INTO seen_domain, seen_token FROM lockctl_mark WHERE resource = fenced FOR UPDATE;
    IF CAST(seen_domain AS BINARY) <> CAST(own_domain AS BINARY) THEN
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
-- connection must bring: as the init command of its driver, or of the client (with the domain in hexadecimal digits, as
-- the name of a lock directory in it may have quotes and backslashes):
--   hex=$(printf %s "$LOCKCTL_TOKEN_DOMAIN" | od -An -v -tx1 | tr -dc 0-9a-f)
--   mariadb --init-command="SET @lockctl_token = '$LOCKCTL_TOKEN', @lockctl_domain = _utf8mb4 X'$hex'"
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
--     ON DUPLICATE KEY UPDATE token = IF(CAST(domain AS BINARY) = CAST(VALUES(domain) AS BINARY)
--         AND token < VALUES(token), VALUES(token), token);
--     SELECT token FROM lockctl_mark
--     WHERE resource = '<resource>' AND token = CAST(@lockctl_token AS SIGNED)
--         AND CAST(domain AS BINARY) = CAST(CONVERT(@lockctl_domain USING utf8mb4) AS BINARY) FOR UPDATE;
--     COMMIT;

-- 3. A row that has its mark in columns of its own: for work that is one row. First before the row is read, then with
-- each change. 0 rows matched: stale, or there is no such row. (Without CLIENT_FOUND_ROWS a driver counts the rows
-- that became different, which may be none when all is well.)
--     ALTER TABLE stock ADD COLUMN fence_domain VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
--         ADD COLUMN fence_token BIGINT;
--     UPDATE stock SET fence_domain = @lockctl_domain, fence_token = CAST(@lockctl_token AS SIGNED)
--     WHERE id = 1 AND (fence_token IS NULL OR (fence_token <= CAST(@lockctl_token AS SIGNED)
--         AND CAST(fence_domain AS BINARY) = CAST(CONVERT(@lockctl_domain USING utf8mb4) AS BINARY)));
--     UPDATE stock SET amount = amount - 1
--     WHERE id = 1 AND fence_token = CAST(@lockctl_token AS SIGNED)
--         AND CAST(fence_domain AS BINARY) = CAST(CONVERT(@lockctl_domain USING utf8mb4) AS BINARY);
"""
