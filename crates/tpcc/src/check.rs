//! Consistency conditions 1 to 4 of the specification (clause 3.3.2), for tables on which no terminal is running.

use std::ops::Bound;

use forebay_btree::{Direction, Error, Tree};

use crate::random::DISTRICTS;
use crate::schema::{Key, Table, Tables, district, number_of, order, warehouse};
use crate::transactions::Done;

/// Amounts are added in another order.
const ROUNDING: f64 = 0.01;

/// Checks every tree, and that:
///
/// 1. a warehouse has got what its districts have got;
/// 2. the next order of a district is the one after its newest order and its newest undelivered one;
/// 3. the undelivered orders of a district have numbers without gaps;
/// 4. a district has as many order lines as its orders say.
///
/// Returns a description of what is not so.
///
/// # Errors
/// Those of a tree.
pub fn check(trees: &[Tree], warehouses: u32) -> Result<Option<String>, Error> {
    for tree in trees {
        tree.check()?;
    }
    let tables = Tables(trees);
    let mut row = Vec::new();
    for number in 1..=warehouses {
        let mut sum = 0.0;
        for of in 1..=DISTRICTS {
            tables.of(Table::District).get_into(Key::of(&[number, of]).bytes(), &mut row)?;
            let next = district::NEXT_ORDER.get(&row);
            sum += district::YTD.get(&row);
            let mut orders = (0, 0.0);
            scan(tables, Table::Order, number, of, |key, row| {
                orders = (number_of(key, 2), orders.1 + order::LINES.get(row));
            })?;
            let mut new = Vec::new();
            scan(tables, Table::NewOrder, number, of, |key, _| new.push(number_of(key, 2)))?;
            let mut lines = 0;
            scan(tables, Table::OrderLine, number, of, |_, _| lines += 1)?;
            let newest = new.last().copied().unwrap_or(orders.0);
            if orders.0 + 1 != next || newest != orders.0 {
                return Ok(Some(format!(
                    "district {number}.{of}: the next order is {next}, the newest {}, the newest undelivered {newest}",
                    orders.0
                )));
            }
            if !new.is_sorted_by(|one, after| one + 1 == *after) {
                return Ok(Some(format!(
                    "district {number}.{of}: undelivered orders have gaps: {new:?}"
                )));
            }
            if orders.1 != f64::from(lines) {
                return Ok(Some(format!(
                    "district {number}.{of}: {lines} order lines, {} by its orders",
                    orders.1
                )));
            }
        }
        tables.of(Table::Warehouse).get_into(Key::of(&[number]).bytes(), &mut row)?;
        let got = warehouse::YTD.get(&row);
        if (got - sum).abs() > ROUNDING {
            return Ok(Some(format!(
                "warehouse {number} has got {got:.2}, its districts {sum:.2}"
            )));
        }
    }
    Ok(None)
}

/// Returns the number of warehouses, and the number of the first terminal that has not used the tables.
///
/// # Errors
/// Those of a tree.
pub fn found(trees: &[Tree]) -> Result<(u32, u32), Error> {
    let last = |table: Table| {
        let tree = Tables(trees).of(table);
        let mut cursor = tree.range(Bound::Unbounded, Bound::Unbounded, Direction::Backward);
        Ok::<_, Error>(cursor.next_entry()?.map_or(0, |(key, _)| number_of(key, 0)))
    };
    Ok((last(Table::Warehouse)?, last(Table::History)? + 1))
}

/// Whether the rows that a transaction has inserted are there: for an order, all its lines.
///
/// # Errors
/// Those of a tree.
pub fn contains(trees: &[Tree], done: Done) -> Result<bool, Error> {
    let (tables, mut row) = (Tables(trees), Vec::new());
    match done {
        Done::Other => Ok(true),
        Done::Payment(key) => tables.of(Table::History).get_into(Key::of(&key).bytes(), &mut row),
        Done::Order([warehouse, district, number]) => {
            let key = Key::of(&[warehouse, district, number]);
            if !tables.of(Table::Order).get_into(key.bytes(), &mut row)? {
                return Ok(false);
            }
            let lines = order::LINES.get(&row) as u32;
            for line in 1..=lines {
                let key = Key::of(&[warehouse, district, number, line]);
                if !tables.of(Table::OrderLine).get_into(key.bytes(), &mut row)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    }
}

fn scan(
    tables: Tables<'_>,
    table: Table,
    warehouse: u32,
    district: u32,
    mut each: impl FnMut(&[u8], &[u8]),
) -> Result<(), Error> {
    let (low, high) = (Key::of(&[warehouse, district]), Key::of(&[warehouse, district + 1]));
    let range = (Bound::Included(low.bytes()), Bound::Excluded(high.bytes()));
    let mut cursor = tables.of(table).range(range.0, range.1, Direction::Forward);
    while let Some((key, row)) = cursor.next_entry()? {
        each(key, row);
    }
    Ok(())
}
