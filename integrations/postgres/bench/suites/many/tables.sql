-- 10,000 partitions of 10 rows, each with an index; and the rows of one table for many cursors.
CREATE TABLE parts (id int, value int) PARTITION BY RANGE (id);
SELECT format('CREATE TABLE part_%s PARTITION OF parts FOR VALUES FROM (%s) TO (%s)', g, 10 * g, 10 * g + 10)
	FROM generate_series(0, 9999) g \gexec
INSERT INTO parts SELECT g, g FROM generate_series(0, 99999) g;
CREATE TABLE single AS SELECT g AS id, g AS value FROM generate_series(1, 100000) g;
