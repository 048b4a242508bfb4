-- SPDX-License-Identifier: MIT
-- Picket's fence for PostgreSQL 14 or newer: docs/fencing-sql.md says how to use it.
--
-- In the transaction that writes, first of all:
--     SELECT picket_claim('ledger', 42);
-- SQLSTATE PKT01: stale; PKT02: unclaimed; PKT03: no token; 40001: roll back, try again.
--
-- The functions run with their owner's rights, so that a role which may claim can't lower
-- a fence. They look for names in pg_catalog first, then in the fence's own schema, and
-- every operator used has an exact match in pg_catalog: nobody can slip in another.

DO $install$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('picket_fence')); -- two installs take turns
    IF to_regclass('picket_fence_version') IS NOT NULL THEN
        RETURN;
    END IF;
    IF current_schema() IS NULL THEN
        RAISE EXCEPTION 'picket: search_path names no schema that exists';
    END IF;
    PERFORM set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

    -- A claim always writes its row, even one that is equal: a waiting transaction with
    -- an older snapshot (REPEATABLE READ) is told 40001 then, and not shown old data.
    CREATE TABLE picket_fence (
        resource text COLLATE "C" PRIMARY KEY
            CHECK (octet_length(resource) BETWEEN 1 AND 255),
        token    bigint NOT NULL DEFAULT 0 -- the highest seen
            CHECK (token BETWEEN 0 AND 9007199254740991),
        value    bytea
            CHECK (octet_length(value) <= 1048576),
        shadow   boolean NOT NULL DEFAULT false, -- let through and count
        shadowed bigint NOT NULL DEFAULT 0
    ) WITH (fillfactor = 50);

    CREATE FUNCTION picket_token(token bigint) RETURNS bigint
    LANGUAGE plpgsql SET search_path FROM CURRENT AS $body$
    BEGIN
        IF token BETWEEN 1 AND 9007199254740991 THEN
            RETURN token;
        END IF;
        RAISE EXCEPTION USING ERRCODE = 'PKT03',
            MESSAGE = 'picket: no token: ' || coalesce(token::text, 'NULL')
                || ' is not a number from 1 to 2^53 - 1';
    END $body$;

    -- What a fence says to a token: its own number, or a refusal.
    CREATE FUNCTION picket_judge(resource text, token bigint, fence bigint,
                                 shadow boolean) RETURNS bigint
    LANGUAGE plpgsql SET search_path FROM CURRENT AS $body$
    DECLARE
        facts text := 'resource ' || quote_ident(resource) || ', token ' || token::text
            || ', fence ' || fence::text;
    BEGIN
        IF token = fence OR shadow THEN
            RETURN fence;
        ELSIF token < fence THEN
            RAISE EXCEPTION USING ERRCODE = 'PKT01', DETAIL = facts,
                MESSAGE = 'picket: stale: a higher token has claimed this resource',
                HINT = 'The lock has passed to another holder. Stop, do not try again.';
        END IF;
        RAISE EXCEPTION USING ERRCODE = 'PKT02', DETAIL = facts,
            MESSAGE = 'picket: unclaimed: this token has not claimed; claim first';
    END $body$;

    CREATE FUNCTION picket_claim(resource text, token bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $body$
    #variable_conflict use_column
    DECLARE
        fence   bigint;
        shadows boolean;
    BEGIN
        INSERT INTO picket_fence AS f (resource, token) VALUES ($1, picket_token($2))
        ON CONFLICT (resource) DO UPDATE
            SET token = greatest(f.token, excluded.token),
                shadowed = f.shadowed
                    + CASE WHEN f.shadow AND f.token > excluded.token THEN 1 ELSE 0 END
        RETURNING f.token, f.shadow INTO fence, shadows;
        RETURN picket_judge($1, $2, fence, shadows);
    END $body$;

    -- Only the token that claimed last passes. Writes the row as it is, see above.
    CREATE FUNCTION picket_check(resource text, token bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $body$
    #variable_conflict use_column
    DECLARE
        fence   bigint;
        shadows boolean;
    BEGIN
        UPDATE picket_fence AS f SET token = f.token WHERE f.resource = $1
        RETURNING f.token, f.shadow INTO fence, shadows;
        RETURN picket_judge($1, picket_token($2), coalesce(fence, 0),
                            coalesce(shadows, false));
    END $body$;

    -- The trigger of a guarded table, with the token's column and the resource: a write
    -- claims, a delete must be of a row with the token that claimed last, a TRUNCATE
    -- names no token. In shadow mode it counts what it would refuse.
    CREATE FUNCTION picket_guard() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $body$
    DECLARE
        name   text := TG_ARGV[1];
        get    text := 'SELECT ($1).' || quote_ident(TG_ARGV[0]) || '::bigint';
        stamp  bigint;
    BEGIN
        IF TG_OP = 'INSERT' OR TG_OP = 'UPDATE' THEN
            EXECUTE get INTO stamp USING NEW;
            IF stamp BETWEEN 1 AND 9007199254740991 THEN
                PERFORM picket_claim(name, stamp);
                RETURN NULL;
            END IF;
        ELSIF TG_OP = 'DELETE' THEN
            EXECUTE get INTO stamp USING OLD;
        END IF;
        UPDATE picket_fence AS f SET shadowed = f.shadowed + 1
         WHERE f.resource = name AND f.shadow
           AND (TG_OP <> 'DELETE' OR f.token IS DISTINCT FROM stamp);
        IF NOT FOUND THEN
            PERFORM picket_check(name, stamp);
        END IF;
        RETURN NULL;
    END $body$;

    CREATE VIEW picket_fence_version AS SELECT 1 AS version;

    REVOKE ALL ON FUNCTION picket_claim(text, bigint), picket_check(text, bigint),
        picket_guard() FROM PUBLIC;
    GRANT SELECT ON picket_fence_version TO PUBLIC;
END $install$;
