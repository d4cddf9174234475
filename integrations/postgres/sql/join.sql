-- Joins over index scans: inner scans that restart, and scans that return to a mark.
LOAD 'forebay';
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_sort = off;
SET enable_incremental_sort = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
-- Nested loops, with outer rows that find one row, none or many, or are null.
SET enable_memoize = off;
SELECT * FROM compare('Nested Loop', 'SELECT o.id, i.note FROM orders o JOIN items i ON i.id = o.item ORDER BY o.id');
SELECT * FROM compare('Nested Loop Left Join', 'SELECT o.id, i.note FROM orders o LEFT JOIN items i ON i.id = o.item ORDER BY o.id');
SELECT * FROM compare('Nested Loop', 'SELECT o.id, i.note FROM orders o JOIN items i ON i.key = o.item ORDER BY o.id DESC');
SELECT * FROM compare('Nested Loop', 'SELECT i.id, o.id FROM items i JOIN orders o ON o.item = i.id ORDER BY i.key');
SELECT * FROM compare('Nested Loop',
  'SELECT o.id, i.key FROM orders o JOIN items i ON i.grp = o.quantity AND i.key BETWEEN o.id AND o.id + 40 ORDER BY o.id');
SELECT * FROM compare('Nested Loop Semi Join',
  'SELECT o.id FROM orders o WHERE EXISTS (SELECT FROM items i WHERE i.grp = o.quantity AND i.key = o.item) ORDER BY o.id');
SELECT * FROM compare('Nested Loop Anti Join',
  'SELECT o.id FROM orders o WHERE NOT EXISTS (SELECT FROM items i WHERE i.key = o.item) ORDER BY o.id');
SELECT * FROM compare('Limit', 'SELECT o.id, i.note FROM orders o JOIN items i ON i.id = o.item ORDER BY o.id LIMIT 25');
SELECT * FROM compare('Nested Loop',
  'SELECT o.id, l.key FROM orders o, LATERAL (SELECT key FROM items i WHERE i.key > o.item ORDER BY key LIMIT 3) l ORDER BY o.id');
SELECT * FROM compare('Nested Loop',
  'SELECT o.id, i.key FROM orders o JOIN items i ON i.key = ANY (ARRAY[o.item, o.id, NULL, o.id]) ORDER BY o.id, i.key');
SELECT * FROM compare('SubPlan', 'SELECT o.id, (SELECT max(i.note) FROM items i WHERE i.key = o.item) FROM orders o ORDER BY o.id');
SELECT * FROM compare('Nested Loop',
  'SELECT o.id, i.id, j.note FROM orders o JOIN items i ON i.id = o.item JOIN items j ON j.key = i.id ORDER BY o.id');
SET enable_memoize = on;
SELECT * FROM compare('Memoize', 'SELECT o.id, i.note FROM orders o JOIN items i ON i.id = o.item ORDER BY o.id');
-- An error in an outer row, and in an inner one.
\set VERBOSITY terse
SELECT count(i.note) FROM orders o JOIN items i ON i.id = o.item / (o.id - 1501);
SELECT count(1 / (i.id - 527)) FROM orders o JOIN items i ON i.id = o.item;
\set VERBOSITY default
-- Merge joins: an inner scan returns to its mark where the outer key occurs again.
SET enable_nestloop = off;
SET enable_mergejoin = on;
SET enable_material = off;
SELECT * FROM compare('Merge Join',
  'SELECT a.id, b.id, b.item FROM orders a JOIN orders b ON a.item = b.item ORDER BY a.item');
SELECT * FROM compare('Merge Join',
  'SELECT a.id, b.id, b.item FROM orders a JOIN orders b ON a.item = b.item ORDER BY a.item DESC');
SELECT * FROM compare('Merge Join', 'SELECT o.id, i.note FROM orders o JOIN items i ON i.key = o.item ORDER BY o.item');
SELECT * FROM compare('Merge Left Join', 'SELECT o.id, i.id FROM orders o LEFT JOIN items i ON i.key = o.item ORDER BY o.item');
SELECT * FROM compare('Merge Join', 'SELECT o.id, i.grp FROM orders o JOIN items i ON i.grp = o.item ORDER BY o.item');
SELECT * FROM compare('Merge Join',
  'SELECT a.id, b.id FROM orders a JOIN (SELECT * FROM orders WHERE item = ANY (''{17,17,34,NULL,85,850}'')) b
     ON a.item = b.item ORDER BY a.item');
SELECT * FROM compare('Limit', 'SELECT a.id, b.id FROM orders a JOIN orders b ON a.item = b.item ORDER BY a.item LIMIT 40');
SELECT indexrelname, scans > 0 AS scanned, rows > 0 AS returned, prefetched = useful + wasted AS consistent
  FROM forebay_stat_indexes WHERE schemaname = 'public' ORDER BY indexrelname COLLATE "C";
