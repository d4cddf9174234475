/* integrations/postgres/sql/forebay--0.1.sql */

\echo Use "CREATE EXTENSION forebay" to load this file. \quit

CREATE FUNCTION forebay_stat_indexes(
	OUT indexrelid oid,
	OUT scans bigint,
	OUT rows bigint,
	OUT prefetched bigint,
	OUT useful bigint,
	OUT wasted bigint,
	OUT resident bigint,
	OUT waited_ms double precision,
	OUT insert_prefetched bigint,
	OUT insert_useful bigint,
	OUT insert_waited_ms double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

CREATE VIEW forebay_stat_indexes AS
	SELECT n.nspname AS schemaname, t.relname AS relname, i.relname AS indexrelname, s.*
	FROM forebay_stat_indexes() s
	LEFT JOIN pg_class i ON i.oid = s.indexrelid
	LEFT JOIN pg_namespace n ON n.oid = i.relnamespace
	LEFT JOIN pg_index x ON x.indexrelid = s.indexrelid
	LEFT JOIN pg_class t ON t.oid = x.indrelid;

GRANT SELECT ON forebay_stat_indexes TO PUBLIC;

CREATE FUNCTION forebay_stat_reset()
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

/* As pg_stat_reset(): for superusers, and for whom they grant it. */
REVOKE ALL ON FUNCTION forebay_stat_reset() FROM PUBLIC;

-- The last reads of this session's scans (forebay.trace), of one relation or of all that the caller may read: S where a
-- read follows the last one of its scan, R where it does not.
CREATE FUNCTION forebay_trace(
    rel regclass DEFAULT NULL,
    OUT n bigint,
    OUT relation regclass,
    OUT access text,
    OUT kind text,
    OUT block bigint,
    OUT blocks int,
    OUT time_ms double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'forebay_trace'
LANGUAGE C VOLATILE CALLED ON NULL INPUT PARALLEL RESTRICTED;

CREATE VIEW forebay_trace_summary AS
SELECT relation, access,
    count(*) FILTER (WHERE kind = 'S') AS sequential,
    count(*) FILTER (WHERE kind = 'R') AS random,
    sum(blocks) AS blocks,
    sum(time_ms) AS time_ms,
    string_agg(kind, '' ORDER BY n) AS trace
FROM forebay_trace()
GROUP BY relation, access;

GRANT SELECT ON forebay_trace_summary TO PUBLIC;
