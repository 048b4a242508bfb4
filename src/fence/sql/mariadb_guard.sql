
-- The guard of one table: each row carries its writer's token. Another engine than
-- InnoDB would keep what was refused.
BEGIN NOT ATOMIC
    IF EXISTS (SELECT 1 FROM information_schema.tables
                WHERE table_schema = DATABASE() AND table_name = @table_text@
                  AND engine <> 'InnoDB') THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT =
            'picket: only an InnoDB table can be guarded; ALTER TABLE ... ENGINE=InnoDB';
    END IF;
END
//

CREATE OR REPLACE TRIGGER picket_insert_@hash@ AFTER INSERT ON @table@
    FOR EACH ROW CALL picket_guard(@resource@, NEW.@column@, FALSE)
//

CREATE OR REPLACE TRIGGER picket_update_@hash@ AFTER UPDATE ON @table@
    FOR EACH ROW CALL picket_guard(@resource@, NEW.@column@, FALSE)
//

CREATE OR REPLACE TRIGGER picket_delete_@hash@ AFTER DELETE ON @table@
    FOR EACH ROW CALL picket_guard(@resource@, OLD.@column@, TRUE)
//

-- The fence begins at the highest token that is in the table already.
INSERT INTO picket_fence (resource, token)
SELECT @resource@, highest
  FROM (SELECT MAX(t.@column@) AS highest FROM @table@ AS t
         WHERE t.@column@ BETWEEN 1 AND 9007199254740991) AS tokens
 WHERE highest IS NOT NULL
    ON DUPLICATE KEY UPDATE token = GREATEST(picket_fence.token, VALUES(token))
//
