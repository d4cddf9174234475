-- Tables whose rows are more or less in the order of their keys: the name of each is the correlation of both in hundredths.
-- The noise that is added to a key is uniform; for a correlation c it is sqrt(1/c^2 - 1) times as wide as the keys' range.

SELECT format('CREATE TABLE rows_%s AS SELECT g AS key, repeat(''x'', 180) AS pad FROM generate_series(1, 1000000) g ORDER BY %s',
		correlation, place)
	FROM (VALUES ('00', 'hashint4(g)'), ('50', 'g + (hashint4(g) & 1048575) * 1.652'), ('90', 'g + (hashint4(g) & 1048575) * 0.4619'),
		('99', 'g + (hashint4(g) & 1048575) * 0.1359')) tables (correlation, place) \gexec

-- The outer rows of nested loops: a hundredth, a tenth and all of the keys.
CREATE TABLE keys_1 AS SELECT g AS key FROM generate_series(300000, 309999) g;
CREATE TABLE keys_10 AS SELECT g AS key FROM generate_series(300000, 399999) g;
CREATE TABLE keys_100 AS SELECT g AS key FROM generate_series(1, 1000000) g;
