-- SPDX-License-Identifier: MIT
-- Picket's locks for PostgreSQL 12 or newer. The driver installs this when it first meets
-- a database; to do it yourself, feed it to psql. Tables can be looked at by anybody who
-- may; they are changed through the functions alone.
--
-- The rules that everything here keeps:
-- R1 Who decides about a lock has its turn, picket.turn(name): one transaction at a time.
-- R2 Each call is one statement, so that a client which is stopped has no turn.
-- R3 A lease that is over is deleted, never revived, even if the clock is set back.
-- R4 Tokens come from a sequence, in the transaction that writes the hold: who hears of a
--    token hears of it after the commit, and by then it is on disk (P2).
-- R5 A statement of a connection that was given up may still come through. It names the
--    lease's era, which a new connection raises, and is refused.

DO $install$
BEGIN
    PERFORM pg_advisory_xact_lock(1885954923, 0); -- two installs take turns
    IF to_regclass('picket.about') IS NOT NULL THEN
        RETURN;
    END IF;
    IF to_regnamespace('picket') IS NULL THEN
        CREATE SCHEMA picket;
    END IF;

    CREATE SEQUENCE picket.token MAXVALUE 9007199254740991;
    CREATE SEQUENCE picket.place;

    CREATE TABLE picket.lease (
        id         bigint PRIMARY KEY,
        era        bigint NOT NULL DEFAULT 1, -- R5
        ttl_ms     bigint NOT NULL,
        expires_at timestamptz NOT NULL,
        label      bytea NOT NULL
    ) WITH (fillfactor = 50);

    -- A hold, or a place in the queue.
    CREATE TABLE picket.claim (
        lease    bigint NOT NULL REFERENCES picket.lease ON DELETE CASCADE,
        request  bigint NOT NULL,
        name     text COLLATE "C" NOT NULL,
        shared   boolean NOT NULL,
        place    bigint NOT NULL DEFAULT nextval('picket.place'),
        token    bigint, -- NULL: it waits
        delay_ms bigint NOT NULL,
        card     bytea NOT NULL,
        PRIMARY KEY (lease, request)
    );
    CREATE INDEX claim_held ON picket.claim (name) WHERE token IS NOT NULL;
    CREATE INDEX claim_waits ON picket.claim (name, place) WHERE token IS NULL;

    -- Holds that were ended by others while their lease lives.
    CREATE TABLE picket.ended (
        lease   bigint NOT NULL REFERENCES picket.lease ON DELETE CASCADE,
        request bigint NOT NULL,
        how     text NOT NULL,
        who     text NOT NULL,
        why     text NOT NULL,
        PRIMARY KEY (lease, request)
    );

    -- Locks that stay closed after an unclean end.
    CREATE TABLE picket.closed (
        name     text COLLATE "C" PRIMARY KEY,
        until_at timestamptz NOT NULL
    );

    -- Sessions that hold or wait for an advisory lock, each by its own word: what counts
    -- is pg_locks.
    CREATE TABLE picket.session_claim (
        lease   bigint NOT NULL,
        request bigint NOT NULL,
        pid     int NOT NULL,
        began   timestamptz NOT NULL, -- the session, since pids come again
        name    text COLLATE "C" NOT NULL,
        key     bigint NOT NULL,
        shared  boolean NOT NULL,
        place   bigint NOT NULL DEFAULT nextval('picket.place'),
        token   bigint, -- NULL: it waits
        card    bytea NOT NULL,
        PRIMARY KEY (lease, request)
    );
    CREATE INDEX session_claim_key ON picket.session_claim (key, place);

    CREATE FUNCTION picket.turn(its_name text) RETURNS void
    LANGUAGE sql AS $body$
        SELECT pg_catalog.pg_advisory_xact_lock(1885954923, hashtext(its_name))
    $body$;

    CREATE FUNCTION picket.after(ms bigint) RETURNS timestamptz
    LANGUAGE sql AS $body$
        SELECT clock_timestamp() + ms * interval '1 millisecond'
    $body$;

    -- From now to then, rounded up.
    CREATE FUNCTION picket.ms_until(at timestamptz) RETURNS bigint
    LANGUAGE sql AS $body$
        SELECT greatest(0, ceil(extract(epoch FROM at - clock_timestamp()) * 1000))::bigint
    $body$;

    CREATE FUNCTION picket.tell(its_lease bigint, what text) RETURNS void
    LANGUAGE sql AS $body$
        SELECT pg_notify('picket_' || its_lease, what)
    $body$;

    -- ---- settling ----

    -- Ends a lease that is over. False: it isn't, or somebody else is at it just now.
    CREATE FUNCTION picket.lease_end(its_id bigint, now_at timestamptz) RETURNS boolean
    LANGUAGE plpgsql AS $body$
    BEGIN
        PERFORM 1 FROM picket.lease WHERE id = its_id AND expires_at <= now_at
            FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        INSERT INTO picket.closed AS c (name, until_at)
        SELECT name, max(l.expires_at + delay_ms * interval '1 millisecond')
          FROM picket.claim JOIN picket.lease l ON l.id = lease
         WHERE lease = its_id AND token IS NOT NULL AND delay_ms > 0 GROUP BY name
        ON CONFLICT (name) DO UPDATE SET until_at = greatest(c.until_at, excluded.until_at);
        DELETE FROM picket.lease WHERE id = its_id;
        PERFORM picket.tell(its_id, 'over');
        RETURN true;
    END $body$;

    -- One statement: who ends a lease without the turn closes its locks with it.
    CREATE FUNCTION picket.is_free(its_name text, its_shared boolean) RETURNS boolean
    LANGUAGE sql AS $body$
        SELECT NOT EXISTS (SELECT FROM picket.claim WHERE name = its_name
                              AND token IS NOT NULL AND NOT (shared AND its_shared))
           AND NOT EXISTS (SELECT FROM picket.closed WHERE name = its_name
                              AND until_at > clock_timestamp())
    $body$;

    -- Ends what is over, then grants to those at the head of the queue. In its turn.
    CREATE FUNCTION picket.settle(its_name text) RETURNS void
    LANGUAGE plpgsql AS $body$
    DECLARE
        now_at timestamptz := clock_timestamp();
        head   record;
    BEGIN
        FOR head IN SELECT DISTINCT lease FROM picket.claim JOIN picket.lease l ON l.id = lease
                     WHERE name = its_name AND token IS NOT NULL AND expires_at <= now_at
        LOOP
            PERFORM picket.lease_end(head.lease, now_at);
        END LOOP;
        LOOP
            SELECT lease, request, shared, expires_at INTO head
              FROM picket.claim JOIN picket.lease l ON l.id = lease
             WHERE name = its_name AND token IS NULL ORDER BY place LIMIT 1;
            IF NOT FOUND THEN
                EXIT;
            ELSIF head.expires_at <= now_at THEN
                EXIT WHEN NOT picket.lease_end(head.lease, now_at);
            ELSIF picket.is_free(its_name, head.shared) THEN
                UPDATE picket.claim SET token = nextval('picket.token')
                 WHERE lease = head.lease AND request = head.request;
                PERFORM picket.tell(head.lease, 'granted' || chr(10) || head.request);
            ELSE
                EXIT;
            END IF;
        END LOOP;
    END $body$;

    -- When a waiter should look again by itself: when the first holder's lease would end.
    -- Those behind look a little later, so that not all come at once.
    CREATE FUNCTION picket.look_again(its_name text, its_place bigint) RETURNS bigint
    LANGUAGE sql AS $body$
        SELECT picket.ms_until(coalesce(
                   least((SELECT min(expires_at)
                            FROM picket.claim JOIN picket.lease l ON l.id = lease
                           WHERE name = its_name AND token IS NOT NULL),
                         (SELECT until_at FROM picket.closed
                           WHERE name = its_name AND until_at > clock_timestamp())),
                   picket.after(50)))
               + (SELECT 20 * count(*)
                    FROM (SELECT FROM picket.claim WHERE name = its_name
                             AND token IS NULL AND place < its_place LIMIT 50) ahead)
    $body$;

    -- ---- leases ----

    -- Gives the era. With the same id again it is the same lease.
    CREATE FUNCTION picket.lease_open(its_id bigint, its_ttl_ms bigint, its_label bytea)
        RETURNS bigint
    LANGUAGE plpgsql AS $body$
    DECLARE
        found_era bigint;
        old       bigint;
    BEGIN
        PERFORM picket.lease_end(its_id, clock_timestamp()); -- R3
        INSERT INTO picket.lease AS l (id, ttl_ms, expires_at, label)
        VALUES (its_id, its_ttl_ms, picket.after(its_ttl_ms), its_label)
        ON CONFLICT (id) DO UPDATE SET era = l.era + 1, ttl_ms = excluded.ttl_ms,
            expires_at = picket.after(its_ttl_ms)
        RETURNING era INTO found_era;
        IF its_id % 16 = 0 THEN -- nobody has looked for these in a minute: sweep
            FOR old IN SELECT id FROM picket.lease
                        WHERE expires_at < clock_timestamp() - interval '1 minute'
                        ORDER BY id LIMIT 100
            LOOP
                PERFORM picket.lease_end(old, clock_timestamp());
            END LOOP;
            DELETE FROM picket.closed
             WHERE until_at < clock_timestamp() - interval '1 minute';
        END IF;
        RETURN found_era;
    END $body$;

    -- For a new connection: what was sent over older ones is void. NULL: it is over.
    CREATE FUNCTION picket.lease_resume(its_id bigint) RETURNS bigint
    LANGUAGE sql AS $body$
        UPDATE picket.lease SET era = era + 1 WHERE id = its_id RETURNING era
    $body$;

    -- Gives its TTL; NULL: it is over.
    CREATE FUNCTION picket.lease_renew(its_id bigint, its_ttl_ms bigint) RETURNS bigint
    LANGUAGE sql AS $body$
        UPDATE picket.lease
           SET ttl_ms = coalesce(nullif(its_ttl_ms, 0), ttl_ms),
               expires_at = picket.after(coalesce(nullif(its_ttl_ms, 0), ttl_ms))
         WHERE id = its_id AND expires_at > clock_timestamp() RETURNING ttl_ms
    $body$;

    -- Ends it, a bounded number of locks at a time, since each takes a place in the
    -- server's table of locks. True: call again. NULL: it is over.
    CREATE FUNCTION picket.lease_close(its_id bigint) RETURNS boolean
    LANGUAGE plpgsql AS $body$
    DECLARE
        names text[];
        one   text;
        more  boolean;
    BEGIN
        SELECT array_agg(name) INTO names
          FROM (SELECT DISTINCT name FROM picket.claim WHERE lease = its_id LIMIT 200) first;
        names := coalesce(names, '{}');
        -- In one order for everybody: no deadlock.
        FOR one IN SELECT n FROM unnest(names) n ORDER BY hashtext(n) LOOP
            PERFORM picket.turn(one);
        END LOOP;
        DELETE FROM picket.claim WHERE lease = its_id AND name = ANY (names);
        more := EXISTS (SELECT FROM picket.claim WHERE lease = its_id);
        IF more THEN
            UPDATE picket.lease SET era = era + 1 WHERE id = its_id;
        ELSE
            DELETE FROM picket.lease WHERE id = its_id;
            more := CASE WHEN FOUND THEN false END;
        END IF;
        FOREACH one IN ARRAY names LOOP
            PERFORM picket.settle(one);
        END LOOP;
        PERFORM picket.tell(its_id, 'over');
        RETURN more;
    END $body$;

    -- ---- claims ----

    CREATE TYPE picket.standing AS (
        state    text, -- held, waiting, none; over: the lease is; void: R5
        token    bigint,
        again_ms bigint
    );

    CREATE FUNCTION picket.stand(its_lease bigint, its_era bigint, its_request bigint,
                                 its_name text, its_shared boolean, its_delay_ms bigint,
                                 its_card bytea, may_wait boolean) RETURNS picket.standing
    LANGUAGE plpgsql AS $body$
    DECLARE
        found_lease record;
        mine        record;
        free        boolean;
    BEGIN
        PERFORM picket.turn(its_name);
        SELECT era, expires_at INTO found_lease FROM picket.lease WHERE id = its_lease
           FOR SHARE;
        IF NOT FOUND OR found_lease.expires_at <= clock_timestamp() THEN
            RETURN ROW('over', 0, 0)::picket.standing;
        ELSIF found_lease.era <> its_era THEN
            RETURN ROW('void', 0, 0)::picket.standing;
        END IF;
        PERFORM FROM picket.ended WHERE lease = its_lease AND request = its_request;
        IF FOUND THEN
            RETURN ROW('none', 0, 0)::picket.standing;
        END IF;
        PERFORM picket.settle(its_name);
        SELECT token, place INTO mine FROM picket.claim
         WHERE lease = its_lease AND request = its_request;
        IF NOT FOUND THEN
            free := picket.is_free(its_name, its_shared)
                AND NOT EXISTS (SELECT FROM picket.claim
                                 WHERE name = its_name AND token IS NULL);
            IF NOT free AND NOT may_wait THEN
                RETURN ROW('none', 0, 0)::picket.standing;
            END IF;
            INSERT INTO picket.claim (lease, request, name, shared, token, delay_ms, card)
            VALUES (its_lease, its_request, its_name, its_shared,
                    CASE WHEN free THEN nextval('picket.token') END, its_delay_ms, its_card)
            RETURNING token, place INTO mine;
        END IF;
        IF mine.token IS NOT NULL THEN
            RETURN ROW('held', mine.token, 0)::picket.standing;
        END IF;
        RETURN ROW('waiting', 0, picket.look_again(its_name, mine.place))::picket.standing;
    END $body$;

    -- These three say: done, notheld, over.
    CREATE FUNCTION picket.verdict(done boolean, its_lease bigint) RETURNS text
    LANGUAGE sql AS $body$
        SELECT CASE WHEN done THEN 'done'
                    WHEN EXISTS (SELECT FROM picket.lease WHERE id = its_lease
                                    AND expires_at > clock_timestamp()) THEN 'notheld'
                    ELSE 'over' END
    $body$;

    CREATE FUNCTION picket.leave(its_lease bigint, its_request bigint, its_name text)
        RETURNS text
    LANGUAGE plpgsql AS $body$
    DECLARE
        done boolean;
    BEGIN
        PERFORM picket.turn(its_name);
        DELETE FROM picket.claim WHERE lease = its_lease AND request = its_request;
        done := FOUND;
        PERFORM picket.settle(its_name);
        RETURN picket.verdict(done, its_lease);
    END $body$;

    -- Ends the hold of that token. By a lease's owner in another process, or by anybody
    -- (its_lease NULL): then the lock stays closed for its delay.
    CREATE FUNCTION picket.hold_end(its_lease bigint, its_name text, its_token bigint,
                                    its_how text, its_who text, its_why text) RETURNS text
    LANGUAGE plpgsql AS $body$
    DECLARE
        hold record;
        done boolean;
    BEGIN
        PERFORM picket.turn(its_name);
        DELETE FROM picket.claim WHERE name = its_name AND token = its_token
               AND lease = coalesce(its_lease, lease)
        RETURNING lease, request, delay_ms INTO hold;
        done := FOUND;
        IF done THEN
            INSERT INTO picket.ended (lease, request, how, who, why)
            VALUES (hold.lease, hold.request, its_how, its_who, its_why);
            PERFORM picket.tell(hold.lease, concat_ws(chr(10), its_how, hold.request,
                                                      its_who, its_why));
        END IF;
        IF done AND its_lease IS NULL AND hold.delay_ms > 0 THEN
            INSERT INTO picket.closed AS c (name, until_at)
            VALUES (its_name, picket.after(hold.delay_ms))
            ON CONFLICT (name) DO UPDATE
                SET until_at = greatest(c.until_at, excluded.until_at);
        END IF;
        PERFORM picket.settle(its_name);
        RETURN picket.verdict(done, its_lease);
    END $body$;

    -- ---- advisory locks ----

    -- The key of a name, for everybody who wants to use the same lock in SQL.
    CREATE FUNCTION picket.key(its_name text) RETURNS bigint
    LANGUAGE sql IMMUTABLE AS $body$
        SELECT hashtextextended(its_name, 0)
    $body$;

    CREATE FUNCTION picket.session_alive(its_pid int, its_began timestamptz)
        RETURNS boolean
    LANGUAGE sql AS $body$
        SELECT EXISTS (SELECT FROM pg_stat_get_activity(its_pid)
                        WHERE coalesce(backend_start, its_began) = its_began)
    $body$;

    CREATE FUNCTION picket.session_began() RETURNS timestamptz
    LANGUAGE sql AS $body$
        SELECT backend_start FROM pg_stat_get_activity(pg_backend_pid())
    $body$;

    -- Who really has which key in this database.
    CREATE VIEW picket.session_lock AS
        SELECT (classid::bigint << 32) | objid::bigint AS key, pid, mode = 'ShareLock' AS shared
          FROM pg_locks
         WHERE locktype = 'advisory' AND objsubid = 1 AND granted
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database());

    -- What sessions have left behind that are gone.
    CREATE FUNCTION picket.session_sweep() RETURNS void
    LANGUAGE sql AS $body$
        DELETE FROM picket.session_claim
         WHERE pid = pg_backend_pid() OR NOT picket.session_alive(pid, began)
    $body$;

    -- Tells the first that waits for the key, so that it tries.
    CREATE FUNCTION picket.session_next(its_key bigint) RETURNS void
    LANGUAGE plpgsql AS $body$
    DECLARE
        one record;
    BEGIN
        FOR one IN SELECT lease, request, pid, began FROM picket.session_claim
                    WHERE key = its_key AND token IS NULL ORDER BY place
        LOOP
            IF picket.session_alive(one.pid, one.began) THEN
                PERFORM picket.tell(one.lease, 'granted' || chr(10) || one.request);
                EXIT;
            END IF;
        END LOOP;
    END $body$;

    -- The lock belongs to the session; the row that says so is written after it was got,
    -- and with it the token (R4). A session's locks don't exclude one another, so that we
    -- have to.
    CREATE FUNCTION picket.session_stand(its_lease bigint, its_request bigint,
                                         its_name text, its_shared boolean,
                                         its_card bytea, may_wait boolean)
        RETURNS picket.standing
    LANGUAGE plpgsql AS $body$
    DECLARE
        its_key bigint := picket.key(its_name);
        mine    record;
        known   boolean;
        got     boolean;
    BEGIN
        SELECT token INTO mine FROM picket.session_claim
         WHERE lease = its_lease AND request = its_request;
        known := FOUND;
        IF known AND mine.token IS NOT NULL THEN
            RETURN ROW('held', mine.token, 0)::picket.standing;
        END IF;
        PERFORM FROM picket.session_claim WHERE lease = its_lease AND key = its_key
            AND token IS NOT NULL AND NOT (shared AND its_shared);
        IF FOUND THEN
            got := false;
        ELSIF its_shared THEN
            got := pg_try_advisory_lock_shared(its_key);
        ELSE
            got := pg_try_advisory_lock(its_key);
        END IF;
        IF NOT got AND NOT may_wait THEN
            RETURN ROW('none', 0, 0)::picket.standing;
        END IF;
        IF known AND got THEN
            UPDATE picket.session_claim SET token = nextval('picket.token')
             WHERE lease = its_lease AND request = its_request RETURNING token INTO mine;
        ELSIF NOT known THEN
            INSERT INTO picket.session_claim (lease, request, pid, began, name, key,
                                              shared, token, card)
            VALUES (its_lease, its_request, pg_backend_pid(), picket.session_began(),
                    its_name, its_key, its_shared,
                    CASE WHEN got THEN nextval('picket.token') END, its_card)
            RETURNING token INTO mine;
        END IF;
        IF got THEN
            RETURN ROW('held', mine.token, 0)::picket.standing;
        END IF;
        RETURN ROW('waiting', 0, 0)::picket.standing;
    END $body$;

    CREATE FUNCTION picket.session_leave(its_lease bigint, its_request bigint)
        RETURNS text
    LANGUAGE plpgsql AS $body$
    DECLARE
        gone record;
    BEGIN
        DELETE FROM picket.session_claim WHERE lease = its_lease AND request = its_request
        RETURNING key, shared, token INTO gone;
        IF NOT FOUND THEN
            RETURN 'notheld';
        END IF;
        IF gone.token IS NOT NULL AND gone.shared THEN
            PERFORM pg_advisory_unlock_shared(gone.key);
        ELSIF gone.token IS NOT NULL THEN
            PERFORM pg_advisory_unlock(gone.key);
        END IF;
        PERFORM picket.session_next(gone.key);
        RETURN 'done';
    END $body$;

    CREATE FUNCTION picket.session_close(its_lease bigint) RETURNS void
    LANGUAGE plpgsql AS $body$
    DECLARE
        one bigint;
    BEGIN
        FOR one IN SELECT request FROM picket.session_claim WHERE lease = its_lease LOOP
            PERFORM picket.session_leave(its_lease, one);
        END LOOP;
    END $body$;

    -- Asks the holder to let go; gives its pid, for the case that it does not.
    CREATE FUNCTION picket.session_break(its_name text, its_token bigint, its_who text,
                                         its_why text) RETURNS int
    LANGUAGE plpgsql AS $body$
    DECLARE
        hold record;
    BEGIN
        SELECT lease, request, pid INTO hold FROM picket.session_claim
         WHERE name = its_name AND token = its_token
           AND picket.session_alive(pid, began);
        IF FOUND THEN
            PERFORM picket.tell(hold.lease, concat_ws(chr(10), 'broken', hold.request,
                                                      its_who, its_why));
        END IF;
        RETURN hold.pid;
    END $body$;

    CREATE TABLE picket.about AS SELECT 1 AS version;
END $install$;
