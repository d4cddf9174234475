-- Index scans return the same rows, in the same order, with look-ahead and without it.
LOAD 'forebay';
\set VERBOSITY terse
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_sort = off;
SET enable_incremental_sort = off;
-- Forward and backward, a part and all of it, with nulls at the end and at the beginning.
SELECT * FROM compare('Index Scan using items_key', 'SELECT * FROM items WHERE key > 100 ORDER BY key');
SELECT * FROM compare('Index Scan Backward using items_key', 'SELECT * FROM items WHERE key < 9000 ORDER BY key DESC');
SELECT * FROM compare('Index Scan using items_key', 'SELECT id, note FROM items ORDER BY key');
SELECT * FROM compare('Index Scan Backward using items_key', 'SELECT id, note FROM items ORDER BY key DESC');
SELECT * FROM compare('Index Scan using items_grp', 'SELECT id, note FROM items WHERE grp = 7 ORDER BY key');
SELECT * FROM compare('Index Scan using items_grp', 'SELECT id, note FROM items WHERE (grp, key) > (20, 5000) ORDER BY grp, key');
SELECT * FROM compare('Index Scan', 'SELECT id FROM items WHERE key > 20000');
-- Filters, and the conditions on nulls.
SELECT * FROM compare('Filter', 'SELECT id FROM items WHERE key > 100 AND id % 3 = 0 ORDER BY key');
SELECT * FROM compare('Index Scan using items_key', 'SELECT id, note FROM items WHERE key IS NULL');
SELECT * FROM compare('Index Scan using items_key', 'SELECT id, note FROM items WHERE key IS NOT NULL ORDER BY key');
SELECT * FROM compare('Index Scan', 'SELECT id, note FROM items WHERE grp = 0 AND key IS NULL');
SELECT count(*) FROM items WHERE key > NULL;
-- Scans that stop.
SELECT * FROM compare('Limit', 'SELECT id, note FROM items WHERE key > 50 ORDER BY key LIMIT 10');
SELECT * FROM compare('Limit', 'SELECT id, note FROM items ORDER BY key DESC NULLS FIRST LIMIT 300 OFFSET 90');
SELECT * FROM compare('Limit', 'SELECT id, note FROM items WHERE key > 50 ORDER BY key LIMIT 0');
SELECT * FROM compare('Unique', 'SELECT DISTINCT ON (grp) grp, key, note FROM items ORDER BY grp, key');
SELECT id, key FROM items WHERE key > 50 ORDER BY key LIMIT 5;
SELECT min(key), max(key) FROM items WHERE grp = 3;
-- The index alone, where the visibility map is sufficient and where it is not.
SELECT * FROM compare('Index Only Scan using items_key', 'SELECT key FROM items WHERE key > 100 ORDER BY key');
SELECT * FROM compare('Index Only Scan Backward using items_key', 'SELECT key FROM items ORDER BY key DESC');
SELECT * FROM compare('Index Only Scan using items_grp', 'SELECT grp, key FROM items WHERE grp < 4 ORDER BY grp, key');
BEGIN;
UPDATE items SET note = 'updated' WHERE id % 10 = 0;
DELETE FROM items WHERE id % 7 = 0;
SELECT * FROM compare('Index Only Scan using items_key', 'SELECT key FROM items WHERE key > 100 ORDER BY key');
SELECT * FROM compare('Index Scan using items_key', 'SELECT id, note FROM items WHERE key > 100 ORDER BY key');
ROLLBACK;
SELECT * FROM compare('Index Only Scan using items_key', 'SELECT key FROM items WHERE key > 100 ORDER BY key');
-- Arrays: in one scan, with nulls, duplicates and elements that do not exist.
SELECT * FROM compare('Index Scan using items_key',
  'SELECT id, key FROM items WHERE key = ANY (''{5,NULL,9000,5,-1,4000,20000}'') ORDER BY key');
SELECT * FROM compare('Index Scan using items_key',
  'SELECT id, note FROM items WHERE key = ANY (ARRAY(SELECT g * 13 FROM generate_series(1, 600) g)) ORDER BY key');
SELECT * FROM compare('Index Scan Backward using items_grp',
  'SELECT id, note FROM items WHERE grp = ANY (''{40,3,17}'') AND key BETWEEN 1000 AND 6000 ORDER BY grp DESC, key DESC');
SELECT * FROM compare('Index Only Scan using items_grp',
  'SELECT grp, key FROM items WHERE grp IN (3, 9, 60) AND key > 5000 ORDER BY grp, key');
SELECT * FROM compare('Index Scan', 'SELECT id FROM items WHERE key = ANY (''{}'')');
SELECT * FROM compare('Index Scan', 'SELECT id FROM items WHERE key = ANY (NULL::int[])');
-- Other scans of the same table.
SET enable_bitmapscan = on;
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
SELECT * FROM compare('Bitmap Heap Scan', 'SELECT id, note FROM items WHERE key BETWEEN 100 AND 3000');
SELECT * FROM compare('BitmapOr', 'SELECT id, note FROM items WHERE key < 200 OR grp = 5');
SELECT * FROM compare('Bitmap Heap Scan', 'SELECT id, note FROM items WHERE grp = 5 LIMIT 20');
SET enable_bitmapscan = off;
SET enable_seqscan = on;
SELECT * FROM compare('Seq Scan', 'SELECT id, note FROM items WHERE key BETWEEN 100 AND 3000');
RESET enable_indexscan;
RESET enable_indexonlyscan;
SET enable_seqscan = off;
-- Partitions, descending and partial indexes, indexes of expressions, temporary tables.
CREATE TABLE parts (a int, b int) PARTITION BY RANGE (a);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (500);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (500) TO (1000);
INSERT INTO parts SELECT g * 7 % 1000, g FROM generate_series(1, 3000) g;
CREATE INDEX ON parts (a);
CREATE INDEX parts_b ON parts_1 (b DESC) WHERE b % 2 = 0;
CREATE INDEX parts_sum ON parts_2 ((a + b));
CREATE TEMPORARY TABLE passing AS SELECT a, b FROM parts;
CREATE INDEX passing_a ON passing (a);
ANALYZE parts, passing;
SELECT * FROM compare('Append', 'SELECT a, b FROM parts WHERE a BETWEEN 300 AND 700 ORDER BY a');
SELECT * FROM compare('parts_b', 'SELECT a, b FROM parts_1 WHERE b % 2 = 0 ORDER BY b DESC');
SELECT * FROM compare('parts_sum', 'SELECT a, b FROM parts_2 WHERE a + b > 2000 ORDER BY a + b');
SELECT * FROM compare('passing_a', 'SELECT a, b FROM passing WHERE a < 500 ORDER BY a');
DROP TABLE parts, passing;
-- Parallel scans.
SET min_parallel_index_scan_size = 0;
SET min_parallel_table_scan_size = 0;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SELECT * FROM compare('Parallel Index Scan', 'SELECT count(note), sum(id) FROM items WHERE key > 100');
SELECT * FROM compare('Parallel Index Only Scan', 'SELECT count(*), sum(key) FROM items WHERE key > 100');
SET max_parallel_workers_per_gather = 0;
-- Prepared statements, changes through an index, and row locks.
PREPARE one (int) AS SELECT id, grp FROM items WHERE key = $1;
EXECUTE one (4000);
EXECUTE one (4001);
EXECUTE one (NULL);
BEGIN;
SELECT count(*) FROM (SELECT id FROM items WHERE key > 9000 ORDER BY key FOR UPDATE) locked;
UPDATE items SET key = key + 20000 WHERE key > 8000;
DELETE FROM items WHERE key > 29000;
SELECT count(*), min(key), max(key) FROM items WHERE key > 7990;
ROLLBACK;
SELECT count(*), min(key), max(key) FROM items WHERE key > 7990;
-- An error in the middle, and the setting changed between two queries.
SELECT count(1 / (key - 5000)) FROM items WHERE key > 100;
SELECT count(note) FROM items WHERE key > 100;
SET forebay.enabled = off;
SELECT count(note) FROM items WHERE key > 100;
SET forebay.enabled = on;
SET forebay.distance_max = 0;
SELECT * FROM compare('Index Scan using items_key', 'SELECT * FROM items WHERE key > 100 ORDER BY key');
RESET forebay.distance_max;
SET forebay.readahead_strategy = adaptive;
SELECT * FROM compare('Index Scan using items_key', 'SELECT * FROM items WHERE key > 100 ORDER BY key');
RESET forebay.readahead_strategy;
