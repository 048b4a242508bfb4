
-- The guard of one table: each row carries its writer's token.
DROP TRIGGER IF EXISTS picket_insert_@hash@;
CREATE TRIGGER picket_insert_@hash@ AFTER INSERT ON @table@
BEGIN
    INSERT INTO picket_guard (resource, token, deletes)
    VALUES (@resource@, NEW.@column@, 0);
END;

DROP TRIGGER IF EXISTS picket_update_@hash@;
CREATE TRIGGER picket_update_@hash@ AFTER UPDATE ON @table@
BEGIN
    INSERT INTO picket_guard (resource, token, deletes)
    VALUES (@resource@, NEW.@column@, 0);
END;

DROP TRIGGER IF EXISTS picket_delete_@hash@;
CREATE TRIGGER picket_delete_@hash@ AFTER DELETE ON @table@
BEGIN
    INSERT INTO picket_guard (resource, token, deletes)
    VALUES (@resource@, OLD.@column@, 1);
END;

-- The fence begins at the highest token that is in the table already.
INSERT INTO picket_fence (resource, token)
SELECT @resource@, highest
  FROM (SELECT max(t.@column@) AS highest FROM @table@ AS t
         WHERE typeof(t.@column@) = 'integer'
           AND t.@column@ BETWEEN 1 AND 9007199254740991)
 WHERE highest IS NOT NULL
    ON CONFLICT (resource) DO UPDATE SET token = excluded.token
 WHERE excluded.token > picket_fence.token;
