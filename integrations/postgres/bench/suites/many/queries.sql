-- Many scans in one query, with nothing to prefetch: the cost of the extension for each. Run with --warm and
-- --server shared_buffers=512MB,max_locks_per_transaction=1000.

-- query scan of 10,000 partitions
select count(value) from parts where id >= 0
-- query 8,000 open cursors
do $$
declare
	one refcursor;
	found record;
begin
	for i in 1 .. 8000 loop
		one := 'cursor ' || i;
		open one for select id, value from single where id >= i order by id;
		fetch one into found;
	end loop;
end $$
