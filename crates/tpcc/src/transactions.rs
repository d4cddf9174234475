//! A terminal and the five transactions (clause 2).

use std::collections::BTreeSet;
use std::hint::black_box;
use std::ops::Bound;

use fastrand::Rng;
use forebay_btree::{Direction, Error};

use crate::random::{self, DISTRICTS, amount, other_than};
use crate::schema::{
    Key, STOCK_DISTRICTS, Table, Tables, customer, customer_name, district, history, item,
    number_of, order, order_line, stock, warehouse,
};

type Result<T> = std::result::Result<T, Error>;

/// A point in time: the benchmark measures no times.
const NOW: u64 = 1;

/// What a transaction has inserted, by which it is found again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// An order: its warehouse, district and number.
    Order([u32; 3]),
    /// A row of the history: its terminal and number.
    Payment([u32; 2]),
    /// Nothing.
    Other,
}

/// Executes transactions, one after the other.
#[derive(Debug)]
pub(crate) struct Terminal<'t> {
    tables: Tables<'t>,
    random: Rng,
    number: u32,
    warehouses: u32,
    payments: u32,
    /// Memory for the row that is read.
    row: Vec<u8>,
}

impl<'t> Terminal<'t> {
    /// `number` is another one for each terminal that has ever used the tables, and not 0.
    pub(crate) fn new(tables: Tables<'t>, number: u32, warehouses: u32, seed: u64) -> Terminal<'t> {
        let random = Rng::with_seed(seed);
        Terminal { tables, random, number, warehouses, payments: 0, row: Vec::new() }
    }

    /// Executes one transaction of the mix: 45 % new orders, 43 % payments, 4 % each of the others.
    pub(crate) fn execute(&mut self) -> Result<Done> {
        let warehouse = self.random.u32(1..=self.warehouses);
        match self.random.u32(0..100) {
            0..43 => self.payment(warehouse),
            43..47 => self.order_status(warehouse),
            47..51 => self.delivery(warehouse),
            51..55 => self.stock_level(warehouse),
            _ => self.new_order(warehouse),
        }
    }

    /// Reads a row into `self.row`. Returns false if it does not exist.
    fn read(&mut self, table: Table, key: &Key) -> Result<bool> {
        self.tables.of(table).get_into(key.bytes(), &mut self.row)
    }

    fn insert(&self, table: Table, key: &Key, row: &[u8]) -> Result<()> {
        self.tables.of(table).insert(key.bytes(), row).map(drop)
    }

    fn update(&self, table: Table, key: &Key, change: impl FnOnce(&mut [u8])) -> Result<bool> {
        self.tables.of(table).update(key.bytes(), change)
    }

    /// Calls `each` with the entries from `from` on whose keys begin with `prefix`, until it returns false.
    fn scan(
        &self,
        table: Table,
        from: &Key,
        prefix: &Key,
        mut each: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let from = Bound::Included(from.bytes());
        let mut cursor = self.tables.of(table).range(from, Bound::Unbounded, Direction::Forward);
        while let Some((key, row)) = cursor.next_entry()? {
            if !key.starts_with(prefix.bytes()) || !each(key, row) {
                break;
            }
        }
        Ok(())
    }

    fn new_order(&mut self, home: u32) -> Result<Done> {
        let random = &mut self.random;
        let (district, customer) = (random.u32(1..=DISTRICTS), random::customer(random));
        let count = random.u32(5..=15);
        let warehouses = self.warehouses;
        let lines: Vec<(u32, u32, u32)> = (0..count)
            .map(|_| {
                let remote = random.u32(0..100) == 0;
                let supply = if remote { other_than(random, 1, warehouses, home) } else { home };
                (supply, random::item(random), random.u32(1..=10))
            })
            .collect();

        self.read(Table::Warehouse, &Key::of(&[home]))?;
        let warehouse_tax = warehouse::TAX.get(&self.row);
        self.read(Table::Customer, &Key::of(&[home, district, customer]))?;
        let discount = customer::DISCOUNT.get(&self.row);
        let (mut number, mut district_tax) = (0, 0.0);
        self.update(Table::District, &Key::of(&[home, district]), |row| {
            number = district::NEXT_ORDER.get(row);
            district_tax = district::TAX.get(row);
            district::NEXT_ORDER.set(row, number + 1);
        })?;

        let mut row = [0; order::BYTES];
        order::CUSTOMER.set(&mut row, customer);
        order::ENTRY.set(&mut row, NOW);
        order::LINES.set(&mut row, count.into());
        let local = lines.iter().all(|&(supply, ..)| supply == home);
        order::ALL_LOCAL.set(&mut row, f64::from(u8::from(local)));
        let key = Key::of(&[home, district, number]);
        self.insert(Table::Order, &key, &row)?;
        let by_customer = Key::of(&[home, district, customer, number]);
        self.insert(Table::OrderCustomer, &by_customer, &[])?;
        self.insert(Table::NewOrder, &key, &[])?;

        for &(supply, item, quantity) in &lines {
            self.update(Table::Stock, &Key::of(&[supply, item]), |row| {
                let (old, quantity) = (stock::QUANTITY.get(row), f64::from(quantity));
                let refill = if old >= quantity + 10.0 { 0.0 } else { 91.0 };
                stock::QUANTITY.set(row, old - quantity + refill);
                stock::YTD.add(row, quantity);
                stock::ORDER_COUNT.add(row, 1.0);
                stock::REMOTE_COUNT.add(row, f64::from(u8::from(supply != home)));
            })?;
        }
        let rate = (1.0 + warehouse_tax + district_tax) * (1.0 - discount);
        for (line, &(supply, item, quantity)) in (1..).zip(&lines) {
            self.read(Table::Item, &Key::of(&[item]))?;
            let price = item::PRICE.get(&self.row);
            self.read(Table::Stock, &Key::of(&[home, item]))?;
            let mut row = [0; order_line::BYTES];
            order_line::ITEM.set(&mut row, item);
            order_line::SUPPLY_WAREHOUSE.set(&mut row, supply);
            order_line::QUANTITY.set(&mut row, quantity.into());
            order_line::AMOUNT.set(&mut row, f64::from(quantity) * price * rate);
            let info = STOCK_DISTRICTS[district as usize - 1].get(&self.row);
            order_line::DISTRICT_INFO.set(&mut row, info);
            self.insert(Table::OrderLine, &Key::of(&[home, district, number, line]), &row)?;
        }
        Ok(Done::Order([home, district, number]))
    }

    fn payment(&mut self, home: u32) -> Result<Done> {
        let random = &mut self.random;
        let district = random.u32(1..=DISTRICTS);
        let remote = random.u32(0..100) < 15;
        let (customer_warehouse, customer_district) = if remote {
            (other_than(random, 1, self.warehouses, home), random.u32(1..=DISTRICTS))
        } else {
            (home, district)
        };
        let amount = amount(random, 1.0, 5000.0);
        let customer = self.choose_customer(customer_warehouse, customer_district)?;
        let Some(customer) = customer else { return Ok(Done::Other) };

        let (mut names, mut text) = (Vec::new(), Vec::new());
        self.update(Table::Warehouse, &Key::of(&[home]), |row| {
            warehouse::YTD.add(row, amount);
            names.extend_from_slice(warehouse::NAME.get(row));
        })?;
        names.extend_from_slice(b"    ");
        self.update(Table::District, &Key::of(&[home, district]), |row| {
            district::YTD.add(row, amount);
            names.extend_from_slice(district::NAME.get(row));
        })?;
        let key = Key::of(&[customer_warehouse, customer_district, customer]);
        self.update(Table::Customer, &key, |row| {
            customer::BALANCE.add(row, -amount);
            customer::YTD_PAYMENT.add(row, amount);
            customer::PAYMENT_COUNT.add(row, 1.0);
            if customer::CREDIT.get(row) == b"BC" {
                text.extend(format!(
                    "| {customer:4} {customer_district:2} {customer_warehouse:4} {district:2} {home:4} ${amount:7.2} {NOW} "
                ).bytes());
                text.extend_from_slice(&names);
                text.extend_from_slice(customer::DATA.get(row));
                customer::DATA.set(row, &text);
            }
        })?;

        self.payments += 1;
        let mut row = [0; history::BYTES];
        history::CUSTOMER.set(&mut row, customer);
        history::CUSTOMER_DISTRICT.set(&mut row, customer_district);
        history::CUSTOMER_WAREHOUSE.set(&mut row, customer_warehouse);
        history::DISTRICT.set(&mut row, district);
        history::WAREHOUSE.set(&mut row, home);
        history::DATE.set(&mut row, NOW);
        history::AMOUNT.set(&mut row, amount);
        history::DATA.set(&mut row, &names);
        let key = [self.number, self.payments];
        self.insert(Table::History, &Key::of(&key), &row)?;
        Ok(Done::Payment(key))
    }

    /// A customer by number, or in 60 of 100 cases by name: the middle one of all with that name, in the order of their
    /// first names.
    fn choose_customer(&mut self, warehouse: u32, district: u32) -> Result<Option<u32>> {
        if self.random.u32(0..100) >= 60 {
            return Ok(Some(random::customer(&mut self.random)));
        }
        let name = random::name(&mut self.random);
        let key = Key::of(&[warehouse, district]).name(&name);
        let mut found = Vec::new();
        self.scan(Table::CustomerName, &key, &key, |_, row| {
            found.push(customer_name::CUSTOMER.get(row));
            true
        })?;
        Ok(found.get(found.len().saturating_sub(1) / 2).copied())
    }

    fn order_status(&mut self, home: u32) -> Result<Done> {
        let district = self.random.u32(1..=DISTRICTS);
        let customer = self.choose_customer(home, district)?;
        let Some(customer) = customer else { return Ok(Done::Other) };
        self.read(Table::Customer, &Key::of(&[home, district, customer]))?;
        // The newest order.
        let prefix = Key::of(&[home, district, customer]);
        let end = Key::of(&[home, district, customer, u32::MAX]);
        let range = (Bound::Included(prefix.bytes()), Bound::Included(end.bytes()));
        let orders = self.tables.of(Table::OrderCustomer);
        let mut cursor = orders.range(range.0, range.1, Direction::Backward);
        let newest = cursor.next_entry()?.map(|(key, _)| number_of(key, 3));
        drop(cursor);
        let Some(number) = newest else { return Ok(Done::Other) };
        let key = Key::of(&[home, district, number]);
        self.read(Table::Order, &key)?;
        let mut total = 0.0;
        self.scan(Table::OrderLine, &key, &key, |_, row| {
            total += order_line::AMOUNT.get(row);
            true
        })?;
        black_box(total);
        Ok(Done::Other)
    }

    fn delivery(&mut self, home: u32) -> Result<Done> {
        let carrier = self.random.u32(1..=10);
        for district in 1..=DISTRICTS {
            let prefix = Key::of(&[home, district]);
            let mut oldest = None;
            self.scan(Table::NewOrder, &prefix, &prefix, |key, _| {
                oldest = Some(number_of(key, 2));
                false
            })?;
            let Some(number) = oldest else { continue };
            let key = Key::of(&[home, district, number]);
            // Another terminal may deliver it at the same time.
            if !self.tables.of(Table::NewOrder).remove(key.bytes())? {
                continue;
            }
            let (mut lines, mut customer) = (0, 0);
            self.update(Table::Order, &key, |row| {
                order::CARRIER.set(row, carrier);
                lines = order::LINES.get(row) as u32;
                customer = order::CUSTOMER.get(row);
            })?;
            let mut total = 0.0;
            for line in 1..=lines {
                let key = Key::of(&[home, district, number, line]);
                // False if the terminal that makes the order has not reached this line.
                self.update(Table::OrderLine, &key, |row| {
                    total += order_line::AMOUNT.get(row);
                    order_line::DELIVERY.set(row, NOW);
                })?;
            }
            self.update(Table::Customer, &Key::of(&[home, district, customer]), |row| {
                customer::BALANCE.add(row, total);
                customer::DELIVERY_COUNT.add(row, 1.0);
            })?;
        }
        Ok(Done::Other)
    }

    fn stock_level(&mut self, home: u32) -> Result<Done> {
        let district = self.random.u32(1..=DISTRICTS);
        let threshold = f64::from(self.random.u32(10..=20));
        self.read(Table::District, &Key::of(&[home, district]))?;
        let next = district::NEXT_ORDER.get(&self.row);
        let (mut items, prefix) = (BTreeSet::new(), Key::of(&[home, district]));
        let from = Key::of(&[home, district, next.saturating_sub(20)]);
        self.scan(Table::OrderLine, &from, &prefix, |key, row| {
            let before = number_of(key, 2) < next;
            if before {
                items.insert(order_line::ITEM.get(row));
            }
            before
        })?;
        let mut low = 0;
        for item in items {
            self.read(Table::Stock, &Key::of(&[home, item]))?;
            low += u32::from(stock::QUANTITY.get(&self.row) < threshold);
        }
        black_box(low);
        Ok(Done::Other)
    }
}
