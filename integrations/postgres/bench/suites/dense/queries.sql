-- Index scans and nested loops over 1, 10 and 100 % of the rows of a table, in the order of the keys.

-- query scan of 1 %, correlation 0.00
select count(pad) from rows_00 where key between 300000 and 309999
-- query loop of 1 %, correlation 0.00
select count(pad) from keys_1 join rows_00 using (key)
-- query scan of 10 %, correlation 0.00
select count(pad) from rows_00 where key between 300000 and 399999
-- query loop of 10 %, correlation 0.00
select count(pad) from keys_10 join rows_00 using (key)
-- query scan of 100 %, correlation 0.00
select count(pad) from rows_00 where key between 1 and 1000000
-- query loop of 100 %, correlation 0.00
select count(pad) from keys_100 join rows_00 using (key)
-- query scan of 1 %, correlation 0.50
select count(pad) from rows_50 where key between 300000 and 309999
-- query loop of 1 %, correlation 0.50
select count(pad) from keys_1 join rows_50 using (key)
-- query scan of 10 %, correlation 0.50
select count(pad) from rows_50 where key between 300000 and 399999
-- query loop of 10 %, correlation 0.50
select count(pad) from keys_10 join rows_50 using (key)
-- query scan of 100 %, correlation 0.50
select count(pad) from rows_50 where key between 1 and 1000000
-- query loop of 100 %, correlation 0.50
select count(pad) from keys_100 join rows_50 using (key)
-- query scan of 1 %, correlation 0.90
select count(pad) from rows_90 where key between 300000 and 309999
-- query loop of 1 %, correlation 0.90
select count(pad) from keys_1 join rows_90 using (key)
-- query scan of 10 %, correlation 0.90
select count(pad) from rows_90 where key between 300000 and 399999
-- query loop of 10 %, correlation 0.90
select count(pad) from keys_10 join rows_90 using (key)
-- query scan of 100 %, correlation 0.90
select count(pad) from rows_90 where key between 1 and 1000000
-- query loop of 100 %, correlation 0.90
select count(pad) from keys_100 join rows_90 using (key)
-- query scan of 1 %, correlation 0.99
select count(pad) from rows_99 where key between 300000 and 309999
-- query loop of 1 %, correlation 0.99
select count(pad) from keys_1 join rows_99 using (key)
-- query scan of 10 %, correlation 0.99
select count(pad) from rows_99 where key between 300000 and 399999
-- query loop of 10 %, correlation 0.99
select count(pad) from keys_10 join rows_99 using (key)
-- query scan of 100 %, correlation 0.99
select count(pad) from rows_99 where key between 1 and 1000000
-- query loop of 100 %, correlation 0.99
select count(pad) from keys_100 join rows_99 using (key)
