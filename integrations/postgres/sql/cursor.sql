-- Cursors that move in both directions, with look-ahead and without it.
LOAD 'forebay';
\set VERBOSITY terse
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_sort = off;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id, key FROM items WHERE key > 100 ORDER BY key;
FETCH 3 FROM c;
FETCH BACKWARD 2 FROM c;
MOVE 1000 FROM c;
FETCH NEXT FROM c;
FETCH PRIOR FROM c;
FETCH ABSOLUTE 5 FROM c;
FETCH RELATIVE -3 FROM c;
FETCH LAST FROM c;
FETCH NEXT FROM c;
FETCH BACKWARD 2 FROM c;
FETCH FIRST FROM c;
FETCH PRIOR FROM c;
MOVE FORWARD ALL FROM c;
MOVE BACKWARD ALL FROM c;
FETCH NEXT FROM c;
COMMIT;
-- Rows at which a cursor arrives after each of many moves.
CREATE FUNCTION positions(query text, distance int) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  c refcursor;
  r record;
  seen text[];
BEGIN
  OPEN c SCROLL FOR EXECUTE query;
  FOR i IN 1 .. 200 LOOP
    MOVE RELATIVE (i * distance) % 601 - 250 FROM c;
    FETCH NEXT FROM c INTO r;
    seen := seen || r::text;
    FETCH PRIOR FROM c INTO r;
    seen := seen || r::text;
  END LOOP;
  CLOSE c;
  RETURN seen;
END $$;
CREATE FUNCTION same_positions(query text, OUT rows int, OUT equal boolean) LANGUAGE plpgsql AS $$
DECLARE
  stock text[];
  ours text[];
BEGIN
  SET forebay.enabled = off;
  stock := positions(query, 7) || positions(query, 193);
  SET forebay.enabled = on;
  ours := positions(query, 7) || positions(query, 193);
  SELECT count(DISTINCT r) INTO rows FROM unnest(ours) r;
  equal := ours = stock;
END $$;
SELECT * FROM same_positions('SELECT id, key FROM items WHERE key > 100 ORDER BY key');
SELECT * FROM same_positions('SELECT id, key FROM items ORDER BY key DESC');
SELECT * FROM same_positions('SELECT key FROM items WHERE key > 100 ORDER BY key');
SELECT * FROM same_positions('SELECT id FROM items WHERE grp = ANY (''{1,5,9,30}'') ORDER BY grp, key');
SELECT * FROM same_positions('SELECT o.id, i.note FROM orders o JOIN items i ON i.id = o.item ORDER BY o.id');
SELECT * FROM same_positions('SELECT o.id, i.note FROM orders o LEFT JOIN items i ON i.id = o.item ORDER BY o.item DESC');
DROP FUNCTION same_positions(text), positions(text, int);
-- Two cursors on one index, a savepoint, an error, and a cursor that outlives its transaction.
BEGIN;
DECLARE up CURSOR WITH HOLD FOR SELECT id, key FROM items WHERE key >= 5000 ORDER BY key;
DECLARE down NO SCROLL CURSOR FOR SELECT id, key FROM items WHERE key < 5000 ORDER BY key DESC;
FETCH 2 FROM up;
FETCH 2 FROM down;
SAVEPOINT s;
FETCH 2 FROM up;
SELECT 1 / (key - 9) FROM items WHERE key < 100 ORDER BY key;
ROLLBACK TO s;
FETCH 2 FROM up;
FETCH 2 FROM down;
SET LOCAL forebay.enabled = off;
FETCH 2 FROM down;
COMMIT;
FETCH 2 FROM up;
CLOSE up;
-- The index is dropped below a cursor, and rows are updated at one.
BEGIN;
DECLARE c CURSOR FOR SELECT id, key FROM items WHERE key > 100 ORDER BY key FOR UPDATE;
FETCH 2 FROM c;
UPDATE items SET key = -id WHERE CURRENT OF c;
SELECT id, key FROM items WHERE key < 0;
SAVEPOINT s;
DROP INDEX items_key;
ROLLBACK TO s;
FETCH 2 FROM c;
ROLLBACK;
