-- The data of the differential test: more than its server's shared buffers, every kind of index, rows that are dead,
-- pages that are all visible and pages that are not. Nothing in it is random, so every version has the same.

create function mix(int, int) returns int immutable strict parallel safe language sql
    as 'select (hashint4extended($1, $2) & 2147483647)::int';

create table item (id int not null, a int, b int, c text, d numeric(10, 2), e date, p point, note text);
insert into item
    select g, mix(g, 1) % 400, case when g % 9 > 0 then mix(g, 2) % 60 end,
        (array['apple', 'Apple', 'äpfel', 'banana', 'Émile', 'emile', 'Zoo', 'zoo', '', 'o-ring'])[1 + mix(g, 3) % 10]
            || case when g % 3 > 0 then (mix(g, 4) % 40)::text else '' end,
        (mix(g, 5) % 10000) / 100.0, date '2020-01-01' + mix(g, 6) % 700,
        point(mix(g, 7) % 1000, mix(g, 8) % 1000), repeat('x', 40 + mix(g, 9) % 80)
    from generate_series(1, 16000) g order by mix(g, 10);
alter table item add primary key (id);
create index item_a_b on item (a, b desc);
create index item_c on item (c);
create index item_d on item (d desc nulls last);
create index item_e_brin on item using brin (e) with (pages_per_range = 8);
create index item_b_null on item (a) where b is null;
create index item_lower on item (lower(c), id);
create index item_mod on item ((a % 17), id);
create index item_b_cover on item (b) include (a, d);
create index item_a_hash on item using hash (a);
create index item_p on item using gist (p);

create table child (id int not null, item int, k int, v numeric(10, 2), t date, note text);
insert into child
    select g, case when g % 31 > 0 then 1 + mix(g, 11) % 16500 end, mix(g, 12) % 1000, (mix(g, 13) % 5000) / 100.0,
        date '2021-01-01' + g / 100, repeat('y', 20 + mix(g, 14) % 60)
    from generate_series(1, 26000) g;
alter table child add primary key (id);
create index child_item on child (item);
create index child_k_v on child (k, v desc nulls last);
create index child_item_k on child (item, k) include (v);
create index child_t on child (t);

create table tag (id int primary key, a int, name text);
insert into tag select g, mix(g, 15) % 400, 'tag' || mix(g, 16) % 90 from generate_series(1, 600) g;
create index tag_a on tag (a);

create table part (id int not null, k int not null, item int, v numeric(10, 2)) partition by range (k);
create table part_low partition of part for values from (0) to (300);
create table part_mid partition of part for values from (300) to (700) partition by hash (id);
create table part_mid0 partition of part_mid for values with (modulus 2, remainder 0);
create table part_mid1 partition of part_mid for values with (modulus 2, remainder 1);
create table part_high partition of part default;
insert into part
    select g, mix(g, 17) % 1000, 1 + mix(g, 18) % 16500, (mix(g, 19) % 5000) / 100.0 from generate_series(1, 9000) g;
create index part_k on part (k);
create index part_id on part (id);
create index part_item on part (item);

create unlogged table memo (id int primary key, a int, c text);
insert into memo select g, mix(g, 20) % 400, 'memo' || mix(g, 21) % 200 from generate_series(1, 3000) g;
create index memo_a on memo (a);

create table link (source int, target int);
insert into link select mix(g, 22) % 2000, mix(g, 23) % 2000 from generate_series(1, 4000) g;
create index link_source on link (source, target);

create sequence calls;
-- What fails on some rows: where it is not reached, it must not be.
create function boom(int) returns int immutable parallel safe language plpgsql as $$
begin
    if $1 % 97 = 13 then raise exception 'boom at %', $1 using errcode = 'P7777'; end if;
    return $1;
end $$;
-- What can be counted and heard: called as often as without us, and in the same order.
create function called(int) returns bigint volatile language sql as 'select nextval(''calls'') + 0 * $1';
create function announce(int) returns bool volatile language plpgsql as $$
begin raise notice 'announced %', $1; return $1 % 3 > 0; end $$;
create function found(int) returns bigint stable parallel safe language plpgsql as $$
declare total bigint := 0; r record;
begin
    for r in select k, v from child where item = $1 order by k loop
        total := total + r.k;
        exit when total > 1500;
    end loop;
    return total;
end $$;
create function walked(int, int) returns table (n int, s text) volatile language plpgsql as $$
declare c scroll cursor (low int) for select i.id, i.c from item i where i.a = low order by i.b desc, i.id; r record;
begin
    open c($1);
    for step in 1..$2 loop
        fetch c into r;
        exit when not found;
        n := r.id; s := r.c;
        return next;
        if step % 5 = 0 then move relative -2 from c; end if;
        begin
            perform boom(r.id);
        exception when sqlstate 'P7777' then n := -r.id; return next;
        end;
    end loop;
    close c;
end $$;
create function changed(int) returns int volatile language plpgsql as $$
declare rows int;
begin
    update child set v = v + 1 where item = $1;
    get diagnostics rows = row_count;
    return rows;
end $$;
