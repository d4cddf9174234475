\set w random(1, :warehouses)
\set d random(1, 10)
\set c ((random(0, 1023) | random(1, 3000)) + 259) % 3000 + 1
\set amount random(1, 5000)
\set name random(1, 100)
SELECT payment(:w, :d, :c, :name <= 60, :amount);
