\echo Use "CREATE EXTENSION forebay" to load this file. \quit

-- The last reads of this session's scans (forebay.trace), of one relation or of all: S where a read follows the last
-- one of its scan, R where it does not.
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
