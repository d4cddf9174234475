CREATE INDEX ON parts (id);
CREATE INDEX ON single (id);
