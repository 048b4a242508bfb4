
-- The guard of one table: each row carries its writer's token.
CREATE OR REPLACE TRIGGER picket_guard AFTER INSERT OR UPDATE OR DELETE ON @table@
    FOR EACH ROW EXECUTE FUNCTION picket_guard(@column_text@, @resource@);
CREATE OR REPLACE TRIGGER picket_guard_truncate BEFORE TRUNCATE ON @table@
    FOR EACH STATEMENT EXECUTE FUNCTION picket_guard(@column_text@, @resource@);

-- The fence begins at the highest token that is in the table already.
INSERT INTO picket_fence AS f (resource, token)
SELECT @resource@, highest
  FROM (SELECT max(t.@column@)::bigint AS highest FROM @table@ AS t
         WHERE t.@column@ BETWEEN 1 AND 9007199254740991) AS tokens
 WHERE highest IS NOT NULL
    ON CONFLICT (resource) DO UPDATE SET token = excluded.token
 WHERE excluded.token > f.token;
