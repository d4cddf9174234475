-- What a role that owns nothing may call, and sees.
LOAD 'forebay';
\set VERBOSITY terse
CREATE ROLE regress_forebay_user;
SELECT proname, has_function_privilege('regress_forebay_user', oid, 'EXECUTE') AS may_call
  FROM pg_proc WHERE proname LIKE 'forebay\_%' ORDER BY proname COLLATE "C";
SELECT relname, has_table_privilege('regress_forebay_user', oid, 'SELECT') AS may_select
  FROM pg_class WHERE relname LIKE 'forebay\_%' ORDER BY relname COLLATE "C";
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(note) FROM items WHERE key < 500;
SELECT relname, indexrelname, scans > 0 AS scanned, rows > 0 AS returned, prefetched = useful + wasted AS consistent,
    resident >= 0 AND waited_ms >= 0 AS counted
  FROM forebay_stat_indexes WHERE indexrelname = 'items_key';
-- Indexes of tables that the role may read, in whole.
SET ROLE regress_forebay_user;
SELECT count(*) FROM forebay_stat_indexes WHERE indexrelname = 'items_key';
SELECT count(*) FROM forebay_trace();
SELECT count(*) FROM forebay_trace('items');
SELECT count(*) FROM forebay_trace_summary;
SELECT forebay_stat_reset();
RESET ROLE;
GRANT SELECT (id) ON items TO regress_forebay_user;
SET ROLE regress_forebay_user;
SELECT count(*) FROM forebay_stat_indexes WHERE indexrelname = 'items_key';
RESET ROLE;
GRANT SELECT ON items TO regress_forebay_user;
SET ROLE regress_forebay_user;
SELECT count(*) FROM forebay_stat_indexes WHERE indexrelname = 'items_key';
RESET ROLE;
ALTER TABLE items ENABLE ROW LEVEL SECURITY;
SET ROLE regress_forebay_user;
SELECT count(*) FROM forebay_stat_indexes WHERE indexrelname = 'items_key';
RESET ROLE;
ALTER TABLE items DISABLE ROW LEVEL SECURITY;
REVOKE ALL ON items FROM regress_forebay_user;
-- All indexes, for those who may read all statistics.
GRANT pg_read_all_stats TO regress_forebay_user;
SET ROLE regress_forebay_user;
SELECT count(*) FROM forebay_stat_indexes WHERE indexrelname = 'items_key';
RESET ROLE;
REVOKE pg_read_all_stats FROM regress_forebay_user;
-- The counters are reset by those to whom that is granted.
GRANT EXECUTE ON FUNCTION forebay_stat_reset() TO regress_forebay_user;
SET ROLE regress_forebay_user;
SELECT forebay_stat_reset();
RESET ROLE;
SELECT count(*) FROM forebay_stat_indexes WHERE indexrelname = 'items_key';
REVOKE ALL ON FUNCTION forebay_stat_reset() FROM regress_forebay_user;
-- The trace is of one user.
SET forebay.trace = on;
SELECT count(note) FROM items WHERE key < 500;
SELECT count(*) FILTER (WHERE kind NOT IN ('S', 'R') OR blocks < 1 OR time_ms < 0) AS odd FROM forebay_trace('items');
SET ROLE regress_forebay_user;
SELECT count(*) FROM forebay_trace('items');
RESET ROLE;
SET forebay.trace = off;
SELECT count(*) FROM forebay_trace();
DROP ROLE regress_forebay_user;
