CREATE INDEX ON rows_00 (key);
CREATE INDEX ON rows_50 (key);
CREATE INDEX ON rows_90 (key);
CREATE INDEX ON rows_99 (key);
