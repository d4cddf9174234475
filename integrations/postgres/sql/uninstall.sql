-- DROP EXTENSION leaves nothing in the database, and what the session has loaded continues to work.
LOAD 'forebay';
DROP EXTENSION forebay;
SELECT relname AS name FROM pg_class WHERE relname LIKE 'forebay%'
  UNION ALL SELECT proname FROM pg_proc WHERE proname LIKE 'forebay%' OR probin LIKE '%forebay%'
  UNION ALL SELECT typname FROM pg_type WHERE typname LIKE '%forebay%'
  UNION ALL SELECT extname FROM pg_extension WHERE extname = 'forebay';
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT * FROM compare('Index Scan using items_key', 'SELECT * FROM items WHERE key > 100 ORDER BY key');
DROP FUNCTION compare(text, text);
DROP TABLE items, orders;
-- Trusted: a role that may create in a database may create it, in any schema that it owns.
CREATE ROLE regress_forebay_owner;
DO $$ BEGIN
  EXECUTE format('GRANT CREATE ON DATABASE %I TO regress_forebay_owner', current_database());
END $$;
SET ROLE regress_forebay_owner;
CREATE SCHEMA regress_forebay;
CREATE EXTENSION forebay SCHEMA regress_forebay;
SELECT count(*) >= 0 AS readable FROM regress_forebay.forebay_stat_indexes;
SELECT count(*) FROM regress_forebay.forebay_trace_summary;
DROP EXTENSION forebay;
DROP SCHEMA regress_forebay;
RESET ROLE;
DROP OWNED BY regress_forebay_owner;
DROP ROLE regress_forebay_owner;
