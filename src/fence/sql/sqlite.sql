-- SPDX-License-Identifier: MIT
-- Picket's fence for SQLite 3.24 or newer: docs/fencing-sql.md says how to use it.
--
-- In the transaction that writes, first of all:
--     INSERT INTO picket_claim (resource, token) VALUES ('ledger', 42);
-- A statement that writes takes SQLite's one write lock and keeps it to the end of the
-- transaction. So between a claim and what is written after it nobody else gets in.
--
-- RAISE takes nothing but constant text, hence no names and numbers in the messages. And
-- an outer INSERT OR IGNORE would skip what a constraint refuses, hence all is checked
-- by hand before anything is written.

CREATE TABLE IF NOT EXISTS picket_fence (
    resource TEXT    NOT NULL PRIMARY KEY COLLATE BINARY
        CHECK (length(CAST(resource AS BLOB)) BETWEEN 1 AND 255),
    token    INTEGER NOT NULL DEFAULT 0 -- the highest seen
        CHECK (typeof(token) = 'integer' AND token BETWEEN 0 AND 9007199254740991),
    value    BLOB
        CHECK (length(CAST(value AS BLOB)) <= 1048576),
    shadow   INTEGER NOT NULL DEFAULT 0 -- 1: let through and count
        CHECK (shadow IN (0, 1)),
    shadowed INTEGER NOT NULL DEFAULT 0
);

CREATE VIEW IF NOT EXISTS picket_claim AS
    SELECT resource, token FROM picket_fence;

CREATE TRIGGER IF NOT EXISTS picket_claim_insert INSTEAD OF INSERT ON picket_claim
BEGIN
    SELECT RAISE(ABORT, 'picket: no token: a token is an integer from 1 to 2^53 - 1')
     WHERE typeof(NEW.token) <> 'integer'
        OR NEW.token NOT BETWEEN 1 AND 9007199254740991;
    SELECT RAISE(ABORT, 'picket: no name: a resource is a text of 1 to 255 bytes')
     WHERE typeof(NEW.resource) <> 'text'
        OR length(CAST(NEW.resource AS BLOB)) NOT BETWEEN 1 AND 255;
    SELECT RAISE(ABORT, 'picket: stale: a higher token has claimed this resource')
      FROM picket_fence
     WHERE resource = NEW.resource AND token > NEW.token AND NOT shadow;
    UPDATE picket_fence
       SET shadowed = shadowed + (token > NEW.token), token = max(token, NEW.token)
     WHERE resource = NEW.resource;
    INSERT INTO picket_fence (resource, token)
    SELECT NEW.resource, NEW.token
     WHERE NOT EXISTS (SELECT 1 FROM picket_fence WHERE resource = NEW.resource);
END;

-- The same, but only the token that claimed last passes, and nothing is changed.
CREATE VIEW IF NOT EXISTS picket_check AS
    SELECT resource, token FROM picket_fence;

CREATE TRIGGER IF NOT EXISTS picket_check_insert INSTEAD OF INSERT ON picket_check
BEGIN
    SELECT RAISE(ABORT, 'picket: no token: a token is an integer from 1 to 2^53 - 1')
     WHERE typeof(NEW.token) <> 'integer'
        OR NEW.token NOT BETWEEN 1 AND 9007199254740991;
    SELECT RAISE(ABORT, 'picket: stale: a higher token has claimed this resource')
      FROM picket_fence
     WHERE resource = NEW.resource AND token > NEW.token AND NOT shadow;
    SELECT RAISE(ABORT, 'picket: unclaimed: this token has not claimed; claim first')
     WHERE NOT EXISTS (SELECT 1 FROM picket_fence
                        WHERE resource = NEW.resource
                          AND (shadow OR token = NEW.token));
END;

-- What the triggers of a guarded table ask: a write claims, a delete must name the token
-- that claimed last. In shadow mode it counts what either would refuse.
CREATE VIEW IF NOT EXISTS picket_guard AS
    SELECT resource, token, 0 AS deletes FROM picket_fence;

CREATE TRIGGER IF NOT EXISTS picket_guard_insert INSTEAD OF INSERT ON picket_guard
BEGIN
    UPDATE picket_fence
       SET shadowed = shadowed + 1
     WHERE resource = NEW.resource AND shadow
       AND CASE WHEN NEW.deletes THEN token IS NOT NEW.token
                ELSE typeof(NEW.token) <> 'integer'
                  OR NEW.token NOT BETWEEN 1 AND 9007199254740991 END;
    INSERT INTO picket_check (resource, token)
    SELECT NEW.resource, NEW.token
     WHERE NEW.deletes
       AND NOT EXISTS (SELECT 1 FROM picket_fence
                        WHERE resource = NEW.resource AND shadow);
    INSERT INTO picket_claim (resource, token)
    SELECT NEW.resource, NEW.token
     WHERE NOT NEW.deletes
       AND NOT EXISTS (SELECT 1 FROM picket_fence
                        WHERE resource = NEW.resource AND shadow
                          AND (typeof(NEW.token) <> 'integer'
                               OR NEW.token NOT BETWEEN 1 AND 9007199254740991));
END;

CREATE VIEW IF NOT EXISTS picket_fence_version AS SELECT 1 AS version;
