-- The tables of the measurements of writes, foreign keys and other index types in results/: 13 GB in all. {run} in their
-- commands makes each run use other rows.

-- COPY, INSERT ... SELECT, ON CONFLICT
CREATE TABLE big (id uuid, v int);
INSERT INTO big SELECT gen_random_uuid(), g FROM generate_series(1, 12000000) g;
ALTER TABLE big ADD PRIMARY KEY (id);

CREATE TABLE parted (id uuid, v int) PARTITION BY HASH (id);
SELECT format('CREATE TABLE parted_%s PARTITION OF parted FOR VALUES WITH (MODULUS 8, REMAINDER %s)', i, i)
	FROM generate_series(0, 7) i \gexec
INSERT INTO parted SELECT gen_random_uuid(), g FROM generate_series(1, 8000000) g;
ALTER TABLE parted ADD PRIMARY KEY (id);

CREATE TABLE big3 (a uuid, b uuid, c uuid, v int);
INSERT INTO big3 SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), g FROM generate_series(1, 8000000) g;
CREATE INDEX ON big3 (a);
CREATE INDEX ON big3 (b);
CREATE INDEX ON big3 (c);

-- UPDATE
CREATE TABLE upd (id int, key uuid, other uuid, pad text) WITH (fillfactor = 90);
INSERT INTO upd SELECT g, gen_random_uuid(), gen_random_uuid(), repeat('x', 60) FROM generate_series(1, 6000000) g;
ALTER TABLE upd ADD PRIMARY KEY (id);
CREATE INDEX ON upd (key);

-- INSERT with two foreign keys
CREATE TABLE p1 AS SELECT g AS id, repeat('x', 500) AS pad FROM generate_series(1, 3000000) g;
CREATE TABLE p2 AS TABLE p1;
ALTER TABLE p1 ADD PRIMARY KEY (id);
ALTER TABLE p2 ADD PRIMARY KEY (id);
CREATE TABLE child (id serial PRIMARY KEY, a int REFERENCES p1, b int REFERENCES p2, note text);

-- DELETE that cascades
CREATE TABLE par AS SELECT g AS id, 'p' AS t FROM generate_series(1, 1000000) g;
ALTER TABLE par ADD PRIMARY KEY (id);
CREATE TABLE kid (id int PRIMARY KEY, par int, pad text);
INSERT INTO kid SELECT g, (hashint4(g) & 1048575) % 1000000 + 1, repeat('y', 500) FROM generate_series(1, 3000000) g;
CREATE INDEX ON kid (par);
ALTER TABLE kid ADD FOREIGN KEY (par) REFERENCES par ON DELETE CASCADE;

-- a nested loop with partitions, values stored out of line
CREATE TABLE pin (id int, pad text) PARTITION BY HASH (id);
SELECT format('CREATE TABLE pin_%s PARTITION OF pin FOR VALUES WITH (MODULUS 8, REMAINDER %s)', i, i)
	FROM generate_series(0, 7) i \gexec
INSERT INTO pin SELECT g, repeat('p', 500) FROM generate_series(1, 2097152) g ORDER BY hashint4(g);
ALTER TABLE pin ADD PRIMARY KEY (id);
CREATE TABLE doc (id int PRIMARY KEY, grp int, j text);
ALTER TABLE doc ALTER j SET STORAGE external;
INSERT INTO doc SELECT g, hashint4(g) & 1023, repeat(md5(g::text), 150) FROM generate_series(1, 300000) g ORDER BY hashint4(g + 1);
CREATE INDEX ON doc (grp);

-- GiST, SP-GiST and hash
CREATE TABLE pts AS SELECT g AS id, point(random() * 1000, random() * 1000) AS p, repeat('z', 300) AS pad
	FROM generate_series(1, 3000000) g;
CREATE INDEX ON pts USING gist (p);
CREATE TABLE spg AS TABLE pts;
CREATE INDEX ON spg USING spgist (p);
CREATE TABLE rng AS SELECT g AS id, int4range(hashint4(g) & 16777215, (hashint4(g) & 16777215) + 100) AS r, repeat('z', 300) AS pad
	FROM generate_series(1, 2000000) g;
CREATE INDEX ON rng USING gist (r);
CREATE TABLE hsh AS SELECT g AS id, hashint4(g) & 511 AS k, repeat('z', 300) AS pad FROM generate_series(1, 2000000) g;
CREATE INDEX ON hsh USING hash (k);

VACUUM ANALYZE;
CHECKPOINT;
