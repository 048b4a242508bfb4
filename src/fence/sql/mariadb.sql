-- SPDX-License-Identifier: MIT
-- Picket's fence for MariaDB 10.6 or newer: docs/fencing-sql.md says how to use it.
--
-- The first statement of the transaction that writes:
--     CALL picket_claim('ledger', 42);
-- Errors: 30001 (PKT01) stale; 30002 (PKT02) unclaimed; 30003 (PKT03) no token;
-- 1020 (40001), 1213: roll back, try again. In error the transaction is still open: roll
-- it back yourself.
--
-- The procedures run with their definer's rights, so that who may claim can't lower a
-- fence. Each raises the fence by one statement, so that it is whole in autocommit too.

CREATE TABLE IF NOT EXISTS picket_fence (
    resource VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL
        PRIMARY KEY CHECK (octet_length(resource) BETWEEN 1 AND 255),
    token    BIGINT NOT NULL DEFAULT 0 -- the highest seen
        CHECK (token BETWEEN 0 AND 9007199254740991),
    value    MEDIUMBLOB
        CHECK (octet_length(value) <= 1048576),
    shadow   BOOLEAN NOT NULL DEFAULT FALSE, -- let through and count
    shadowed BIGINT NOT NULL DEFAULT 0,
    turns    BIGINT NOT NULL DEFAULT 0 -- claims and checks: see picket_enter
) ENGINE = InnoDB
//

CREATE PROCEDURE IF NOT EXISTS picket_token(IN a_token BIGINT)
BEGIN
    DECLARE why TEXT DEFAULT CONCAT('picket: no token: ', COALESCE(a_token, 'NULL'),
                                    ' is not a number from 1 to 2^53 - 1');
    IF a_token IS NULL OR a_token NOT BETWEEN 1 AND 9007199254740991 THEN
        SIGNAL SQLSTATE 'PKT03' SET MYSQL_ERRNO = 30003, MESSAGE_TEXT = why;
    END IF;
END
//

-- Takes the row of a resource until the transaction ends, if it may.
--
-- In REPEATABLE READ, MariaDB's default, plain reads show the database as it was at the
-- first of them, even if the claim comes later. A transaction that looked before it
-- claimed would go on with what it saw then. So every claim, check and guarded write
-- counts a turn: if the turns we see are not those that are, somebody was here since we
-- looked.
CREATE PROCEDURE IF NOT EXISTS picket_enter(
    IN a_resource VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin)
MODIFIES SQL DATA
BEGIN
    DECLARE now_at, seen BIGINT;
    SELECT turns INTO now_at FROM picket_fence WHERE resource = a_resource FOR UPDATE;
    SELECT turns INTO seen FROM picket_fence WHERE resource = a_resource;
    IF @@in_transaction AND NOT now_at <=> seen THEN
        SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1020, MESSAGE_TEXT =
            'picket: this transaction read before it claimed; roll back, claim first';
    END IF;
END
//

-- What a fence says to a token: nothing, or a refusal.
CREATE PROCEDURE IF NOT EXISTS picket_judge(
    IN a_resource VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    IN a_token BIGINT)
READS SQL DATA
BEGIN
    DECLARE why TEXT CHARACTER SET utf8mb4;
    DECLARE fence BIGINT DEFAULT 0;
    DECLARE shadows BOOLEAN DEFAULT FALSE;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET fence = 0;
    SELECT token, shadow INTO fence, shadows FROM picket_fence
     WHERE resource = a_resource FOR UPDATE;
    IF a_token < fence AND NOT shadows THEN
        SET why = CONCAT('picket: stale: token ', a_token, ', fence ', fence, ' of ',
                         LEFT(a_resource, 40));
        SIGNAL SQLSTATE 'PKT01' SET MYSQL_ERRNO = 30001, MESSAGE_TEXT = why;
    ELSEIF a_token > fence AND NOT shadows THEN
        SET why = CONCAT('picket: unclaimed: token ', a_token, ', fence ', fence, ' of ',
                         LEFT(a_resource, 40), '; claim first');
        SIGNAL SQLSTATE 'PKT02' SET MYSQL_ERRNO = 30002, MESSAGE_TEXT = why;
    END IF;
END
//

-- Raises and judges. An INSERT that meets its key takes the row's exclusive lock at once,
-- where a read before it would lock the gap and make two first claims kill each other.
CREATE PROCEDURE IF NOT EXISTS picket_raise(
    IN a_resource VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    IN a_token BIGINT)
MODIFIES SQL DATA
BEGIN
    CALL picket_token(a_token);
    INSERT INTO picket_fence (resource, token) VALUES (a_resource, a_token)
    ON DUPLICATE KEY UPDATE
        shadowed = shadowed + (shadow AND token > a_token),
        token = GREATEST(token, a_token),
        turns = turns + 1;
    CALL picket_judge(a_resource, a_token);
END
//

CREATE PROCEDURE IF NOT EXISTS picket_claim(
    IN a_resource VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    IN a_token BIGINT)
MODIFIES SQL DATA
BEGIN
    CALL picket_token(a_token);
    INSERT INTO picket_fence (resource) VALUES (a_resource)
    ON DUPLICATE KEY UPDATE token = token; -- the row is there now, and ours
    CALL picket_enter(a_resource);
    CALL picket_raise(a_resource, a_token);
END
//

-- Only the token that claimed last passes.
CREATE PROCEDURE IF NOT EXISTS picket_check(
    IN a_resource VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    IN a_token BIGINT)
MODIFIES SQL DATA
BEGIN
    CALL picket_token(a_token);
    CALL picket_enter(a_resource);
    UPDATE picket_fence SET turns = turns + 1 WHERE resource = a_resource;
    CALL picket_judge(a_resource, a_token);
END
//

-- What the triggers of a guarded table call: a write claims, a delete must be of a row
-- with the token that claimed last. In shadow mode it counts what it would refuse.
CREATE PROCEDURE IF NOT EXISTS picket_guard(
    IN a_resource VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    IN a_token BIGINT, IN deletes BOOLEAN)
MODIFIES SQL DATA
BEGIN
    IF NOT deletes AND a_token BETWEEN 1 AND 9007199254740991 THEN
        CALL picket_raise(a_resource, a_token);
    ELSE
        UPDATE picket_fence
           SET shadowed = shadowed + (shadow AND NOT (deletes AND token <=> a_token)),
               turns = turns + 1
         WHERE resource = a_resource;
        IF NOT EXISTS (SELECT 1 FROM picket_fence
                        WHERE resource = a_resource AND shadow) THEN
            CALL picket_token(a_token);
            CALL picket_judge(a_resource, a_token);
        END IF;
    END IF;
END
//

CREATE VIEW IF NOT EXISTS picket_fence_version AS SELECT 1 AS version
//
