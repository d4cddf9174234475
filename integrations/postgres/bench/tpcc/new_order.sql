\set w random(1, :warehouses)
\set d random(1, 10)
\set c ((random(0, 1023) | random(1, 3000)) + 259) % 3000 + 1
\set items random(5, 15)
SELECT new_order(:w, :d, :c, :items);
