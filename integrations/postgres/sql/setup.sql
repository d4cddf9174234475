-- The extension, and what the other scripts use. All of them give the same output whether the library is preloaded or not.
CREATE EXTENSION forebay;
LOAD 'forebay';
SELECT pg_describe_object(classid, objid, objsubid) COLLATE "C" AS object
  FROM pg_depend
  WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e' AND classid <> 'pg_type'::regclass
    AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'forebay')
  ORDER BY 1;
-- The order of `key` is not that of the heap. It is unique, except for 100 nulls; a `grp` has 200 rows.
CREATE TABLE items (id int PRIMARY KEY, key int, grp int NOT NULL, note text);
INSERT INTO items
  SELECT g, CASE WHEN g % 100 <> 0 THEN g * 7919 % 10007 END, g % 50, repeat('x', 100)
    FROM generate_series(1, 10000) g;
CREATE INDEX items_key ON items (key);
CREATE INDEX items_grp ON items (grp, key);
-- Some items do not exist, some occur often, some are null.
CREATE TABLE orders (id int PRIMARY KEY, item int, quantity int);
INSERT INTO orders
  SELECT g, CASE WHEN g % 20 <> 0 THEN g * 31 % 700 * 17 END, g % 7 FROM generate_series(1, 2000) g;
CREATE INDEX orders_item ON orders (item);
VACUUM ANALYZE items, orders;
-- Runs a query without look-ahead and with it; returns whether its plan contains `node`, the number of rows, and whether
-- both runs returned the same rows in the same order.
CREATE FUNCTION compare(node text, query text, OUT in_plan boolean, OUT rows bigint, OUT equal boolean)
LANGUAGE plpgsql AS $$
DECLARE
  summary text := format('SELECT count(*), string_agg(r::text, chr(10)) FROM (%s) r', query);
  line text;
  stock text;
  ours text;
BEGIN
  in_plan := false;
  FOR line IN EXECUTE 'EXPLAIN ' || summary LOOP
    in_plan := in_plan OR strpos(line, node) > 0;
  END LOOP;
  SET forebay.enabled = off;
  EXECUTE summary INTO rows, stock;
  SET forebay.enabled = on;
  EXECUTE summary INTO rows, ours;
  equal := ours IS NOT DISTINCT FROM stock;
END $$;
