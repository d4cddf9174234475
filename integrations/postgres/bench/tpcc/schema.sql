-- A mix in the manner of TPC-C, in DBT-2's role: five transactions as functions, tables filled by generate_series.
-- It is not TPC-C: no terminals, no think times, one session takes any warehouse.
--
--   psql -v warehouses=10 -f schema.sql
--   pgbench -n -D warehouses=10 -f new_order.sql@45 -f payment.sql@43 -f order_status.sql@4 -f delivery.sql@4 -f stock_level.sql@4
--
-- A warehouse takes about 100 MB.
\set ON_ERROR_STOP on
SET synchronous_commit = off;

CREATE TABLE warehouse (w_id int, w_tax numeric(4,4), w_ytd numeric(12,2), w_name text, w_address text);
CREATE TABLE district (d_w_id int, d_id int, d_tax numeric(4,4), d_ytd numeric(12,2), d_next_o_id int, d_name text, d_address text);
CREATE TABLE customer (c_w_id int, c_d_id int, c_id int, c_first text, c_last text, c_credit char(2), c_discount numeric(4,4),
    c_balance numeric(12,2), c_ytd_payment numeric(12,2), c_payment_cnt int, c_delivery_cnt int, c_data text);
CREATE TABLE history (h_c_id int, h_c_d_id int, h_c_w_id int, h_d_id int, h_w_id int, h_date timestamp, h_amount numeric(6,2), h_data text);
CREATE TABLE orders (o_w_id int, o_d_id int, o_id int, o_c_id int, o_entry_d timestamp, o_carrier_id int, o_ol_cnt int);
CREATE TABLE new_order (no_w_id int, no_d_id int, no_o_id int);
CREATE TABLE order_line (ol_w_id int, ol_d_id int, ol_o_id int, ol_number int, ol_i_id int, ol_supply_w_id int,
    ol_delivery_d timestamp, ol_quantity int, ol_amount numeric(6,2), ol_dist_info char(24));
CREATE TABLE item (i_id int, i_name text, i_price numeric(5,2), i_data text);
CREATE TABLE stock (s_w_id int, s_i_id int, s_quantity int, s_ytd int, s_order_cnt int, s_dist text, s_data text);

-- The last names of TPC-C, for numbers from 0 to 999.
CREATE FUNCTION last_name(n int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT s[n / 100 + 1] || s[n / 10 % 10 + 1] || s[n % 10 + 1]
    FROM (SELECT '{BAR,OUGHT,ABLE,PRI,PRES,ESE,ANTI,CALLY,ATION,EING}'::text[] AS s) names $$;

INSERT INTO warehouse SELECT w, random() * 0.2, 300000, 'W' || w, repeat('a', 60) FROM generate_series(1, :warehouses) w;
INSERT INTO district SELECT w, d, random() * 0.2, 30000, 3001, 'D' || d, repeat('a', 60)
FROM generate_series(1, :warehouses) w, generate_series(1, 10) d;
INSERT INTO item SELECT i, 'item ' || i, 1 + random() * 99, repeat('i', 38) FROM generate_series(1, 100000) i;
INSERT INTO stock SELECT w, i, 10 + random() * 90, 0, 0, repeat('s', 240), repeat('d', 38)
FROM generate_series(1, :warehouses) w, generate_series(1, 100000) i;
INSERT INTO customer SELECT w, d, c, 'first' || c, last_name(CASE WHEN c <= 1000 THEN c - 1 ELSE (random() * 999)::int END),
    CASE WHEN random() < 0.1 THEN 'BC' ELSE 'GC' END, random() * 0.5, -10, 10, 1, 0, repeat('c', 400)
FROM generate_series(1, :warehouses) w, generate_series(1, 10) d, generate_series(1, 3000) c;
INSERT INTO orders SELECT w, d, o, 1 + (o * 7919) % 3000, now(), CASE WHEN o <= 2100 THEN 1 + (random() * 9)::int END, 5 + o % 11
FROM generate_series(1, :warehouses) w, generate_series(1, 10) d, generate_series(1, 3000) o;
INSERT INTO new_order SELECT o_w_id, o_d_id, o_id FROM orders WHERE o_id > 2100;
INSERT INTO order_line SELECT o_w_id, o_d_id, o_id, l, 1 + (random() * 99999)::int, o_w_id,
    CASE WHEN o_id <= 2100 THEN o_entry_d END, 5, random() * 9999, repeat('l', 24)
FROM orders, generate_series(1, o_ol_cnt) l;

ALTER TABLE warehouse ADD PRIMARY KEY (w_id);
ALTER TABLE district ADD PRIMARY KEY (d_w_id, d_id);
ALTER TABLE customer ADD PRIMARY KEY (c_w_id, c_d_id, c_id);
ALTER TABLE orders ADD PRIMARY KEY (o_w_id, o_d_id, o_id);
ALTER TABLE new_order ADD PRIMARY KEY (no_w_id, no_d_id, no_o_id);
ALTER TABLE order_line ADD PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number);
ALTER TABLE item ADD PRIMARY KEY (i_id);
ALTER TABLE stock ADD PRIMARY KEY (s_w_id, s_i_id);
CREATE INDEX customer_name ON customer (c_w_id, c_d_id, c_last, c_first);
CREATE INDEX orders_customer ON orders (o_w_id, o_d_id, o_c_id, o_id);

-- The clause of TPC-C on non-uniform numbers, from 1 to `most`.
CREATE FUNCTION nurand(a int, most int) RETURNS int LANGUAGE sql VOLATILE AS $$
    SELECT (((floor(random() * (a + 1))::int | (1 + floor(random() * most))::int) + 259) % most) + 1 $$;

-- A customer by number, or by last name: of those that have it, the one in the middle by first name.
CREATE FUNCTION customer_of(w int, d int, c int, by_name boolean) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    ids int[];
    name text := last_name(nurand(255, 1000) - 1);
BEGIN
    IF NOT by_name THEN
        RETURN c;
    END IF;
    SELECT array_agg(c_id ORDER BY c_first) INTO ids FROM customer
    WHERE c_w_id = w AND c_d_id = d AND c_last = name;
    RETURN coalesce(ids[(cardinality(ids) + 1) / 2], c);
END $$;

CREATE FUNCTION new_order(w int, d int, c int, items int) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
    o int;
    total numeric := 0;
    amount numeric;
    discount numeric;
    wanted int;
    line int := 0;
BEGIN
    SELECT c_discount INTO discount FROM customer WHERE c_w_id = w AND c_d_id = d AND c_id = c;
    PERFORM w_tax FROM warehouse WHERE w_id = w;
    UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = w AND d_id = d RETURNING d_next_o_id - 1 INTO o;
    INSERT INTO orders VALUES (w, d, o, c, now(), NULL, items);
    INSERT INTO new_order VALUES (w, d, o);
    -- In ascending order, so that no two orders wait for each other.
    FOR wanted IN SELECT DISTINCT nurand(8191, 100000) AS i FROM generate_series(1, items) ORDER BY i LOOP
        line := line + 1;
        SELECT i_price * 5 INTO amount FROM item WHERE i_id = wanted;
        UPDATE stock SET s_quantity = CASE WHEN s_quantity >= 15 THEN s_quantity - 5 ELSE s_quantity + 86 END,
            s_ytd = s_ytd + 5, s_order_cnt = s_order_cnt + 1
        WHERE s_w_id = w AND s_i_id = wanted;
        INSERT INTO order_line VALUES (w, d, o, line, wanted, w, NULL, 5, amount, repeat('l', 24));
        total := total + amount;
    END LOOP;
    RETURN total * (1 - discount);
END $$;

CREATE FUNCTION payment(w int, d int, c int, by_name boolean, amount numeric) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    who int := customer_of(w, d, c, by_name);
BEGIN
    UPDATE customer SET c_balance = c_balance - amount, c_ytd_payment = c_ytd_payment + amount,
        c_payment_cnt = c_payment_cnt + 1,
        c_data = CASE WHEN c_credit = 'BC' THEN left(who || ' ' || w || c_data, 500) ELSE c_data END
    WHERE c_w_id = w AND c_d_id = d AND c_id = who;
    INSERT INTO history VALUES (who, d, w, d, w, now(), amount, 'payment');
    UPDATE district SET d_ytd = d_ytd + amount WHERE d_w_id = w AND d_id = d;
    UPDATE warehouse SET w_ytd = w_ytd + amount WHERE w_id = w;
END $$;

CREATE FUNCTION order_status(w int, d int, c int, by_name boolean) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    who int := customer_of(w, d, c, by_name);
    o int;
BEGIN
    PERFORM c_balance FROM customer WHERE c_w_id = w AND c_d_id = d AND c_id = who;
    SELECT o_id INTO o FROM orders WHERE o_w_id = w AND o_d_id = d AND o_c_id = who ORDER BY o_id DESC LIMIT 1;
    RETURN (SELECT sum(ol_amount) FROM order_line WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o);
END $$;

CREATE FUNCTION delivery(w int, carrier int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    o int;
    who int;
    sum_of numeric;
BEGIN
    FOR d IN 1..10 LOOP
        SELECT no_o_id INTO o FROM new_order WHERE no_w_id = w AND no_d_id = d ORDER BY no_o_id LIMIT 1 FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN o IS NULL;
        DELETE FROM new_order WHERE no_w_id = w AND no_d_id = d AND no_o_id = o;
        UPDATE orders SET o_carrier_id = carrier WHERE o_w_id = w AND o_d_id = d AND o_id = o RETURNING o_c_id INTO who;
        UPDATE order_line SET ol_delivery_d = now() WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o;
        SELECT sum(ol_amount) INTO sum_of FROM order_line WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o;
        UPDATE customer SET c_balance = c_balance + sum_of, c_delivery_cnt = c_delivery_cnt + 1
        WHERE c_w_id = w AND c_d_id = d AND c_id = who;
    END LOOP;
END $$;

CREATE FUNCTION stock_level(w int, d int, threshold int) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(DISTINCT s_i_id) FROM district
    JOIN order_line ON ol_w_id = d_w_id AND ol_d_id = d_id AND ol_o_id BETWEEN d_next_o_id - 20 AND d_next_o_id - 1
    JOIN stock ON s_w_id = d_w_id AND s_i_id = ol_i_id
    WHERE d_w_id = w AND d_id = d AND s_quantity < threshold $$;
