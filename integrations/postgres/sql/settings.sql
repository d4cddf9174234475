LOAD 'forebay';
SELECT name, vartype, boot_val, min_val, max_val, enumvals
  FROM pg_settings WHERE name LIKE 'forebay.%' ORDER BY name COLLATE "C";
-- All but forebay.server_distance_max and forebay.stat_indexes_max are set by any user.
CREATE ROLE regress_forebay_user;
SET ROLE regress_forebay_user;
SET forebay.enabled = off;
SHOW forebay.enabled;
SET forebay.distance_max = 1024;
SHOW forebay.distance_max;
SET forebay.readahead_strategy = adaptive;
SHOW forebay.readahead_strategy;
BEGIN;
SET LOCAL forebay.trace = on;
SHOW forebay.trace;
ROLLBACK;
SHOW forebay.trace;
DO $$ BEGIN
  SET forebay.stat_indexes_max = 1000;
EXCEPTION WHEN cant_change_runtime_param THEN
  RAISE NOTICE 'not in a session';
END $$;
\set VERBOSITY terse
SET forebay.enabled = maybe;
SET forebay.distance_max = 1025;
SET forebay.distance_max = -1;
SET forebay.distance_max = 'far';
SET forebay.readahead_strategy = none;
SHOW forebay.distance_max;
RESET ROLE;
DROP ROLE regress_forebay_user;
-- A function's setting holds while it runs.
CREATE FUNCTION distance() RETURNS text LANGUAGE sql SET forebay.distance_max = 7
  AS $$ SELECT current_setting('forebay.distance_max') $$;
SELECT distance(), current_setting('forebay.distance_max');
DROP FUNCTION distance();
