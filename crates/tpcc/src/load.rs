//! The initial rows (clause 4.3.3).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use fastrand::Rng;
use forebay_btree::{Error, Tree};

use crate::random::{
    self, CUSTOMERS, DISTRICTS, ITEMS, amount, data, digits, name_of, name_to_load, text, zip,
};
use crate::schema::{
    Key, STOCK_DISTRICTS, Table, Tables, customer, customer_name, district, history, item, order,
    order_line, stock, warehouse,
};

/// Orders of a district; those from here on are not delivered yet.
const ORDERS: u32 = 3000;
const FIRST_UNDELIVERED: u32 = 2101;

/// Fills the empty trees with the rows of `warehouses` warehouses, by `threads` threads. `goes_on` gets the number of warehouses
/// that are done; if it returns false, the load ends, and returns false as well.
pub(crate) fn load(
    trees: &[Tree],
    warehouses: u32,
    threads: u32,
    goes_on: impl Fn(u32) -> bool + Sync,
) -> Result<bool, Error> {
    let tables = Tables(trees);
    Loader { tables, random: Rng::with_seed(0), payments: 0 }.items()?;
    let (next, done) = (AtomicU32::new(1), AtomicU32::new(0));
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let work = || loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number > warehouses || ends.load(Ordering::Relaxed) {
                return Ok::<_, Error>(());
            }
            let random = Rng::with_seed(number.into());
            Loader { tables, random, payments: 0 }.warehouse(number)?;
            if !goes_on(done.fetch_add(1, Ordering::Relaxed) + 1) {
                ends.store(true, Ordering::Relaxed);
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    Ok(!ends.into_inner())
}

struct Loader<'t> {
    tables: Tables<'t>,
    random: Rng,
    payments: u32,
}

impl Loader<'_> {
    fn insert(&self, table: Table, key: &Key, row: &[u8]) -> Result<(), Error> {
        self.tables.of(table).insert(key.bytes(), row).map(drop)
    }

    fn items(&mut self) -> Result<(), Error> {
        for number in 1..=ITEMS {
            let mut row = [0; item::BYTES];
            item::IMAGE.set(&mut row, self.random.u32(1..=10_000));
            item::NAME.set(&mut row, &text(&mut self.random, 14, 24));
            item::PRICE.set(&mut row, amount(&mut self.random, 1.0, 100.0));
            item::DATA.set(&mut row, &data(&mut self.random));
            self.insert(Table::Item, &Key::of(&[number]), &row)?;
        }
        Ok(())
    }

    fn warehouse(&mut self, number: u32) -> Result<(), Error> {
        let mut row = [0; warehouse::BYTES];
        let random = &mut self.random;
        warehouse::YTD.set(&mut row, 300_000.0);
        warehouse::TAX.set(&mut row, amount(random, 0.0, 0.2));
        warehouse::NAME.set(&mut row, &text(random, 6, 10));
        warehouse::STREET_1.set(&mut row, &text(random, 10, 20));
        warehouse::STREET_2.set(&mut row, &text(random, 10, 20));
        warehouse::CITY.set(&mut row, &text(random, 10, 20));
        warehouse::STATE.set(&mut row, &text(random, 2, 2));
        warehouse::ZIP.set(&mut row, &zip(random));
        self.insert(Table::Warehouse, &Key::of(&[number]), &row)?;
        self.stock(number)?;
        for district in 1..=DISTRICTS {
            self.district(number, district)?;
            self.customers(number, district)?;
            self.orders(number, district)?;
        }
        Ok(())
    }

    fn stock(&mut self, warehouse: u32) -> Result<(), Error> {
        for number in 1..=ITEMS {
            let mut row = [0; stock::BYTES];
            stock::QUANTITY.set(&mut row, self.random.u32(10..=100).into());
            for info in STOCK_DISTRICTS {
                info.set(&mut row, &text(&mut self.random, 24, 24));
            }
            stock::DATA.set(&mut row, &data(&mut self.random));
            self.insert(Table::Stock, &Key::of(&[warehouse, number]), &row)?;
        }
        Ok(())
    }

    fn district(&mut self, warehouse: u32, number: u32) -> Result<(), Error> {
        let mut row = [0; district::BYTES];
        let random = &mut self.random;
        district::NEXT_ORDER.set(&mut row, ORDERS + 1);
        district::YTD.set(&mut row, 30_000.0);
        district::TAX.set(&mut row, amount(random, 0.0, 0.2));
        district::NAME.set(&mut row, &text(random, 6, 10));
        district::STREET_1.set(&mut row, &text(random, 10, 20));
        district::STREET_2.set(&mut row, &text(random, 10, 20));
        district::CITY.set(&mut row, &text(random, 10, 20));
        district::STATE.set(&mut row, &text(random, 2, 2));
        district::ZIP.set(&mut row, &zip(random));
        self.insert(Table::District, &Key::of(&[warehouse, number]), &row)
    }

    fn customers(&mut self, warehouse: u32, district: u32) -> Result<(), Error> {
        for number in 1..=CUSTOMERS {
            let random = &mut self.random;
            let last = if number <= 1000 { name_of(number - 1) } else { name_to_load(random) };
            let first = text(random, 8, 16);
            let mut row = [0; customer::BYTES];
            customer::BALANCE.set(&mut row, -10.0);
            customer::YTD_PAYMENT.set(&mut row, 10.0);
            customer::PAYMENT_COUNT.set(&mut row, 1.0);
            customer::DATA.set(&mut row, &text(random, 300, 500));
            customer::FIRST.set(&mut row, &first);
            customer::MIDDLE.set(&mut row, b"OE");
            customer::LAST.set(&mut row, &last);
            customer::STREET_1.set(&mut row, &text(random, 10, 20));
            customer::STREET_2.set(&mut row, &text(random, 10, 20));
            customer::CITY.set(&mut row, &text(random, 10, 20));
            customer::STATE.set(&mut row, &text(random, 2, 2));
            customer::ZIP.set(&mut row, &zip(random));
            customer::PHONE.set(&mut row, &digits(random, 16));
            customer::SINCE.set(&mut row, 1);
            let credit = if random.u32(0..10) == 0 { b"BC" } else { b"GC" };
            customer::CREDIT.set(&mut row, credit);
            customer::CREDIT_LIMIT.set(&mut row, 50_000.0);
            customer::DISCOUNT.set(&mut row, amount(random, 0.0, 0.5));
            self.insert(Table::Customer, &Key::of(&[warehouse, district, number]), &row)?;

            let mut row = [0; customer_name::BYTES];
            customer_name::CUSTOMER.set(&mut row, number);
            // Unlike a customer's number, two names may be equal.
            let key = Key::of(&[warehouse, district]).name(&last).name(&first);
            self.insert(Table::CustomerName, &key, &row)?;

            let mut row = [0; history::BYTES];
            history::CUSTOMER.set(&mut row, number);
            for column in [history::CUSTOMER_DISTRICT, history::DISTRICT] {
                column.set(&mut row, district);
            }
            for column in [history::CUSTOMER_WAREHOUSE, history::WAREHOUSE] {
                column.set(&mut row, warehouse);
            }
            history::DATE.set(&mut row, 1);
            history::AMOUNT.set(&mut row, 10.0);
            history::DATA.set(&mut row, &text(&mut self.random, 12, 24));
            self.payments += 1;
            self.insert(Table::History, &Key::of(&[0, warehouse, self.payments]), &row)?;
        }
        Ok(())
    }

    fn orders(&mut self, warehouse: u32, district: u32) -> Result<(), Error> {
        let mut customers: Vec<u32> = (1..=CUSTOMERS).collect();
        self.random.shuffle(&mut customers);
        for (number, customer) in (1..=ORDERS).zip(customers) {
            let delivered = number < FIRST_UNDELIVERED;
            let lines = self.random.u32(5..=15);
            let mut row = [0; order::BYTES];
            order::CARRIER.set(&mut row, if delivered { self.random.u32(1..=10) } else { 0 });
            order::CUSTOMER.set(&mut row, customer);
            order::ENTRY.set(&mut row, 1);
            order::LINES.set(&mut row, lines.into());
            order::ALL_LOCAL.set(&mut row, 1.0);
            let key = Key::of(&[warehouse, district, number]);
            self.insert(Table::Order, &key, &row)?;
            let by_customer = Key::of(&[warehouse, district, customer, number]);
            self.insert(Table::OrderCustomer, &by_customer, &[])?;
            if !delivered {
                self.insert(Table::NewOrder, &key, &[])?;
            }
            for line in 1..=lines {
                let random = &mut self.random;
                let mut row = [0; order_line::BYTES];
                order_line::DELIVERY.set(&mut row, u64::from(delivered));
                order_line::ITEM.set(&mut row, random.u32(1..=ITEMS));
                order_line::SUPPLY_WAREHOUSE.set(&mut row, warehouse);
                order_line::QUANTITY.set(&mut row, 5.0);
                let amount = if delivered { 0.0 } else { random::amount(random, 0.01, 9999.99) };
                order_line::AMOUNT.set(&mut row, amount);
                order_line::DISTRICT_INFO.set(&mut row, &text(random, 24, 24));
                let key = Key::of(&[warehouse, district, number, line]);
                self.insert(Table::OrderLine, &key, &row)?;
            }
        }
        Ok(())
    }
}
