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
-- R6 A renewal never brings the end of a lease forward, whatever its TTL: should the
--    answer get lost, the holder still relies on the end that it was told before (P4).

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
        until_at timestamptz NOT NULL,
        lease    bigint, -- of a session that died
        delay_ms bigint
    );

    -- Sessions that are leases, and what they hold or wait for by their own word. Who has
    -- an advisory lock is to be seen in pg_locks alone; the rows are for the queue, and
    -- for what comes after a session that died.
    CREATE TABLE picket.session (
        lease      bigint PRIMARY KEY,
        pid        int NOT NULL,
        began      timestamptz NOT NULL, -- since pids come again
        expires_at timestamptz NOT NULL  -- until then it may believe that it holds
    ) WITH (fillfactor = 50);
    CREATE TABLE picket.session_claim (
        lease    bigint NOT NULL REFERENCES picket.session ON DELETE CASCADE,
        request  bigint NOT NULL,
        name     text COLLATE "C" NOT NULL,
        key      bigint NOT NULL,
        shared   boolean NOT NULL,
        place    bigint NOT NULL DEFAULT nextval('picket.place'),
        token    bigint, -- NULL: it waits
        delay_ms bigint NOT NULL,
        card     bytea NOT NULL,
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

    -- The lock stays closed that long.
    CREATE FUNCTION picket.close_for(its_name text, ms bigint) RETURNS void
    LANGUAGE sql AS $body$
        INSERT INTO picket.closed AS c (name, until_at)
        SELECT its_name, picket.after(ms) WHERE ms > 0
        ON CONFLICT (name) DO UPDATE SET until_at = greatest(c.until_at, excluded.until_at)
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
    -- False: nobody had a claim, as is mostly so.
    CREATE FUNCTION picket.settle(its_name text) RETURNS boolean
    LANGUAGE plpgsql AS $body$
    DECLARE
        now_at timestamptz := clock_timestamp();
        head   record;
    BEGIN
        IF NOT EXISTS (SELECT FROM picket.claim WHERE name = its_name) THEN
            RETURN false;
        END IF;
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
        RETURN true;
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
               expires_at = greatest(expires_at,
                   picket.after(coalesce(nullif(its_ttl_ms, 0), ttl_ms))) -- R6
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
        others      boolean;
        free        boolean;
        my_token    bigint;
        my_place    bigint;
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
        others := picket.settle(its_name);
        IF others THEN
            SELECT token, place INTO my_token, my_place FROM picket.claim
             WHERE lease = its_lease AND request = its_request;
        END IF;
        IF my_place IS NULL THEN
            free := picket.is_free(its_name, its_shared)
                AND NOT (others AND EXISTS (SELECT FROM picket.claim
                                             WHERE name = its_name AND token IS NULL));
            IF NOT free AND NOT may_wait THEN
                RETURN ROW('none', 0, 0)::picket.standing;
            END IF;
            INSERT INTO picket.claim (lease, request, name, shared, token, delay_ms, card)
            VALUES (its_lease, its_request, its_name, its_shared,
                    CASE WHEN free THEN nextval('picket.token') END, its_delay_ms, its_card)
            RETURNING token, place INTO my_token, my_place;
        END IF;
        IF my_token IS NOT NULL THEN
            RETURN ROW('held', my_token, 0)::picket.standing;
        END IF;
        RETURN ROW('waiting', 0, picket.look_again(its_name, my_place))::picket.standing;
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
        IF done AND its_lease IS NULL THEN
            PERFORM picket.close_for(its_name, hold.delay_ms);
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

    -- This session is that lease, and is ended by the server when it was idle until the
    -- lease's end, or when nothing comes through for that long. Gives its pid.
    CREATE FUNCTION picket.session_renew(its_lease bigint, its_ttl_ms bigint) RETURNS int
    LANGUAGE plpgsql AS $body$
    DECLARE
        end_at timestamptz;
    BEGIN
        INSERT INTO picket.session AS s (lease, pid, began, expires_at)
        SELECT its_lease, pid, backend_start, picket.after(its_ttl_ms)
          FROM pg_stat_get_activity(pg_backend_pid())
        ON CONFLICT (lease) DO UPDATE
            SET expires_at = greatest(s.expires_at, excluded.expires_at) -- R6
        RETURNING expires_at INTO end_at;
        PERFORM picket.session_limit(picket.ms_until(end_at));
        RETURN pg_backend_pid();
    END $body$;

    -- 0: without a limit.
    CREATE FUNCTION picket.session_limit(idle_ms bigint) RETURNS void
    LANGUAGE plpgsql AS $body$
    BEGIN
        IF current_setting('server_version_num')::int >= 140000 THEN
            PERFORM set_config('idle_session_timeout', idle_ms::text, false);
        END IF;
        PERFORM set_config('tcp_user_timeout', idle_ms::text, false),
                set_config('tcp_keepalives_idle', ((idle_ms + 999) / 1000)::text, false),
                set_config('tcp_keepalives_interval', '1', false);
    END $body$;

    -- Who really has which key in this database.
    CREATE VIEW picket.session_lock AS
        SELECT (classid::bigint << 32) | objid::bigint AS key, pid, mode = 'ShareLock' AS shared
          FROM pg_locks
         WHERE locktype = 'advisory' AND objsubid = 1 AND granted
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database());

    -- What is left of a session that ended without a word: its locks are free, but what
    -- it started may still run. So they stay closed until it would have known (P4), and
    -- for their delay. False: somebody else is at it just now.
    CREATE FUNCTION picket.session_bury(its_lease bigint) RETURNS boolean
    LANGUAGE plpgsql AS $body$
    BEGIN
        PERFORM 1 FROM picket.session WHERE lease = its_lease FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        INSERT INTO picket.closed AS c (name, until_at, lease, delay_ms)
        SELECT name, max(expires_at + delay_ms * interval '1 millisecond'), its_lease,
               max(delay_ms)
          FROM picket.session_claim JOIN picket.session USING (lease)
         WHERE lease = its_lease AND token IS NOT NULL GROUP BY name
        ON CONFLICT (name) DO UPDATE SET until_at = excluded.until_at,
            lease = excluded.lease, delay_ms = excluded.delay_ms
         WHERE excluded.until_at > c.until_at;
        DELETE FROM picket.session WHERE lease = its_lease;
        RETURN true;
    END $body$;

    -- The owner of a session that was lost knows that: nothing is left but the delays.
    -- Should the server not have noticed yet, it does now.
    CREATE FUNCTION picket.session_mourn(its_lease bigint) RETURNS void
    LANGUAGE plpgsql AS $body$
    DECLARE
        one record;
    BEGIN
        PERFORM pg_terminate_backend(s.pid)
           FROM picket.session s
          WHERE lease = its_lease AND s.pid <> pg_backend_pid()
            AND picket.session_alive(pid, began)
            AND EXISTS (SELECT FROM picket.session_claim c
                          JOIN picket.session_lock l USING (key)
                         WHERE c.lease = its_lease AND l.pid = s.pid);
        PERFORM picket.session_bury(its_lease);
        FOR one IN UPDATE picket.closed
                      SET until_at = picket.after(delay_ms), lease = NULL
                    WHERE lease = its_lease RETURNING name
        LOOP
            PERFORM picket.session_next(picket.key(one.name));
        END LOOP;
    END $body$;

    CREATE FUNCTION picket.session_sweep() RETURNS void
    LANGUAGE sql AS $body$
        SELECT picket.session_bury(lease) FROM picket.session
         WHERE NOT picket.session_alive(pid, began);
        DELETE FROM picket.closed WHERE until_at < clock_timestamp() - interval '1 minute';
    $body$;

    -- Tells the first that waits for the key, so that it tries.
    CREATE FUNCTION picket.session_next(its_key bigint) RETURNS void
    LANGUAGE plpgsql AS $body$
    DECLARE
        one record;
    BEGIN
        FOR one IN SELECT lease, request, pid, began
                     FROM picket.session_claim JOIN picket.session USING (lease)
                    WHERE key = its_key AND token IS NULL ORDER BY place
        LOOP
            IF picket.session_alive(one.pid, one.began) THEN
                PERFORM picket.tell(one.lease, 'granted' || chr(10) || one.request);
                EXIT;
            END IF;
        END LOOP;
    END $body$;

    -- Whether it may try: nobody else of us has a word against it. A session's locks
    -- don't exclude one another, those of dead sessions exclude nobody.
    CREATE FUNCTION picket.session_may_try(its_lease bigint, its_name text, its_key bigint,
                                           its_shared boolean, its_place bigint)
        RETURNS boolean
    LANGUAGE sql AS $body$
        SELECT NOT EXISTS (
                   SELECT FROM picket.session_claim c JOIN picket.session s USING (lease)
                    WHERE key = its_key AND NOT (shared AND its_shared)
                      AND CASE WHEN token IS NULL
                               THEN place < its_place AND picket.session_alive(pid, began)
                               ELSE lease = its_lease
                                    OR NOT picket.session_alive(pid, began) END)
           AND NOT EXISTS (SELECT FROM picket.closed WHERE name = its_name
                              AND until_at > clock_timestamp())
    $body$;

    -- The lock belongs to the session; the row that says so is written after it was got,
    -- and with it the token (R4).
    CREATE FUNCTION picket.session_stand(its_lease bigint, its_request bigint,
                                         its_name text, its_shared boolean,
                                         its_delay_ms bigint, its_card bytea,
                                         may_wait boolean) RETURNS picket.standing
    LANGUAGE plpgsql AS $body$
    DECLARE
        its_key bigint := picket.key(its_name);
        mine    record;
        known   boolean;
        got     boolean := false;
    BEGIN
        PERFORM picket.turn(its_key::text);
        SELECT token, place INTO mine FROM picket.session_claim
         WHERE lease = its_lease AND request = its_request;
        known := FOUND;
        IF known AND mine.token IS NOT NULL THEN
            RETURN ROW('held', mine.token, 0)::picket.standing;
        END IF;
        PERFORM picket.session_bury(lease)
           FROM (SELECT DISTINCT lease, pid, began
                   FROM picket.session_claim JOIN picket.session USING (lease)
                  WHERE key = its_key AND token IS NOT NULL) holders
          WHERE NOT picket.session_alive(pid, began);
        IF picket.session_may_try(its_lease, its_name, its_key, its_shared,
                                  coalesce(mine.place, 9223372036854775807)) THEN
            got := CASE WHEN its_shared THEN pg_try_advisory_lock_shared(its_key)
                        ELSE pg_try_advisory_lock(its_key) END;
        END IF;
        IF NOT got AND NOT may_wait THEN
            RETURN ROW('none', 0, 0)::picket.standing;
        END IF;
        IF known AND got THEN
            UPDATE picket.session_claim SET token = nextval('picket.token')
             WHERE lease = its_lease AND request = its_request RETURNING token INTO mine;
        ELSIF NOT known THEN
            INSERT INTO picket.session_claim (lease, request, name, key, shared, token,
                                              delay_ms, card)
            VALUES (its_lease, its_request, its_name, its_key, its_shared,
                    CASE WHEN got THEN nextval('picket.token') END, its_delay_ms, its_card)
            RETURNING token INTO mine;
        END IF;
        IF got AND its_shared THEN
            PERFORM picket.session_next(its_key); -- perhaps it can come along
        END IF;
        IF got THEN
            RETURN ROW('held', mine.token, 0)::picket.standing;
        END IF;
        RETURN ROW('waiting', 0,
                   (SELECT picket.ms_until(until_at) FROM picket.closed
                     WHERE name = its_name AND until_at > clock_timestamp()
                       AND until_at < picket.after(1000)))::picket.standing;
    END $body$;

    -- In its turn, so that nobody sees a hold without its lock.
    CREATE FUNCTION picket.session_leave(its_lease bigint, its_request bigint)
        RETURNS text
    LANGUAGE plpgsql AS $body$
    DECLARE
        gone record;
    BEGIN
        PERFORM picket.turn(key::text) FROM picket.session_claim
          WHERE lease = its_lease AND request = its_request;
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

    -- In one order for everybody, and a bounded number at a time, as lease_close. True:
    -- call again.
    CREATE FUNCTION picket.session_close(its_lease bigint) RETURNS boolean
    LANGUAGE plpgsql AS $body$
    DECLARE
        one bigint;
    BEGIN
        FOR one IN SELECT request
                     FROM (SELECT request, key FROM picket.session_claim
                            WHERE lease = its_lease LIMIT 200) first
                    ORDER BY hashtext(key::text)
        LOOP
            PERFORM picket.session_leave(its_lease, one);
        END LOOP;
        PERFORM FROM picket.session_claim WHERE lease = its_lease;
        IF FOUND THEN
            RETURN true;
        END IF;
        DELETE FROM picket.session WHERE lease = its_lease;
        PERFORM picket.session_limit(0);
        RETURN false;
    END $body$;

    -- Asks the holder to let go; gives its pid, for the case that it does not. NULL:
    -- nobody holds that.
    CREATE FUNCTION picket.session_break(its_name text, its_token bigint, its_who text,
                                         its_why text) RETURNS int
    LANGUAGE plpgsql AS $body$
    DECLARE
        hold record;
    BEGIN
        SELECT lease, request, pid, delay_ms INTO hold
          FROM picket.session_claim JOIN picket.session USING (lease)
         WHERE name = its_name AND token = its_token AND picket.session_alive(pid, began);
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
        PERFORM picket.close_for(its_name, hold.delay_ms);
        PERFORM picket.tell(hold.lease, concat_ws(chr(10), 'broken', hold.request,
                                                  its_who, its_why));
        RETURN hold.pid;
    END $body$;

    -- It did not let go, so that its session will be ended: then no word of it counts.
    CREATE FUNCTION picket.session_evict(its_name text, its_token bigint, its_pid int)
        RETURNS boolean
    LANGUAGE plpgsql AS $body$
    BEGIN
        DELETE FROM picket.session_claim WHERE name = its_name AND token = its_token;
        RETURN pg_terminate_backend(its_pid);
    END $body$;

    CREATE TABLE picket.about AS SELECT 1 AS version;
END $install$;
