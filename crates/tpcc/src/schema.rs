//! Tables, keys and rows.
//!
//! A key is its numbers in big-endian order, so that bytes compare as the numbers do; a name in a key ends with a zero.
//! A row is its columns one after the other, each with a fixed length: numbers have 4 or 8 bytes, a text has 2 bytes for
//! its length and then its maximum length. Columns that change together are neighbours, so that the log's record of an
//! update is short.

use forebay_btree::Tree;

/// The trees' names.
pub const NAMES: [&str; 11] = [
    "warehouse",
    "district",
    "customer",
    "customer_name",
    "history",
    "new_order",
    "order",
    "order_customer",
    "order_line",
    "item",
    "stock",
];

/// A table, or one of the two indexes: customers by name, orders by customer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Table {
    Warehouse,
    District,
    Customer,
    CustomerName,
    History,
    NewOrder,
    Order,
    OrderCustomer,
    OrderLine,
    Item,
    Stock,
}

/// The trees of all tables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tables<'t>(pub(crate) &'t [Tree]);

impl<'t> Tables<'t> {
    pub(crate) fn of(self, table: Table) -> &'t Tree {
        &self.0[table as usize]
    }
}

/// The longest key: a warehouse, a district and two names of 16 bytes.
const KEY_BYTES_MAX: usize = 48;

/// A key, built from its parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    bytes: [u8; KEY_BYTES_MAX],
    len: usize,
}

impl Key {
    pub(crate) fn of(numbers: &[u32]) -> Key {
        let mut key = Key { bytes: [0; KEY_BYTES_MAX], len: 0 };
        for number in numbers {
            key.push(&number.to_be_bytes());
        }
        key
    }

    pub(crate) fn name(mut self, name: &[u8]) -> Key {
        self.push(name);
        self.push(&[0]);
        self
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The number at index `index` of a key.
pub(crate) fn number_of(key: &[u8], index: usize) -> u32 {
    let bytes = key[4 * index..].first_chunk().expect("keys begin with their numbers");
    u32::from_be_bytes(*bytes)
}

/// A column of type integer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Int(usize);

impl Int {
    pub(crate) fn get(self, row: &[u8]) -> u32 {
        u32::from_le_bytes(row[self.0..self.0 + 4].try_into().expect("four bytes"))
    }

    pub(crate) fn set(self, row: &mut [u8], value: u32) {
        row[self.0..self.0 + 4].copy_from_slice(&value.to_le_bytes());
    }
}

/// A column of type numeric.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Num(usize);

impl Num {
    pub(crate) fn get(self, row: &[u8]) -> f64 {
        f64::from_le_bytes(row[self.0..self.0 + 8].try_into().expect("eight bytes"))
    }

    pub(crate) fn set(self, row: &mut [u8], value: f64) {
        row[self.0..self.0 + 8].copy_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn add(self, row: &mut [u8], value: f64) {
        self.set(row, self.get(row) + value);
    }
}

/// A column with a point in time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time(usize);

impl Time {
    pub(crate) fn set(self, row: &mut [u8], value: u64) {
        row[self.0..self.0 + 8].copy_from_slice(&value.to_le_bytes());
    }
}

/// A column of type varchar, with its maximum length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text(usize, usize);

impl Text {
    pub(crate) fn get(self, row: &[u8]) -> &[u8] {
        let len = u16::from_le_bytes([row[self.0], row[self.0 + 1]]);
        &row[self.0 + 2..][..usize::from(len)]
    }

    /// The first bytes of `value`, as many as fit.
    pub(crate) fn set(self, row: &mut [u8], value: &[u8]) {
        let len = value.len().min(self.1);
        row[self.0..self.0 + 2].copy_from_slice(&(len as u16).to_le_bytes());
        row[self.0 + 2..][..len].copy_from_slice(&value[..len]);
    }
}

/// Defines the columns of a row, and its length.
macro_rules! row {
    (@ $at:expr;) => {
        pub(crate) const BYTES: usize = $at;
    };
    (@ $at:expr; $name:ident Int, $($rest:tt)*) => {
        pub(crate) const $name: Int = Int($at);
        row!(@ $at + 4; $($rest)*);
    };
    (@ $at:expr; $name:ident Num, $($rest:tt)*) => {
        pub(crate) const $name: Num = Num($at);
        row!(@ $at + 8; $($rest)*);
    };
    (@ $at:expr; $name:ident Time, $($rest:tt)*) => {
        pub(crate) const $name: Time = Time($at);
        row!(@ $at + 8; $($rest)*);
    };
    (@ $at:expr; $name:ident Text($max:literal), $($rest:tt)*) => {
        pub(crate) const $name: Text = Text($at, $max);
        row!(@ $at + 2 + $max; $($rest)*);
    };
    ($module:ident: $($columns:tt)*) => {
        pub(crate) mod $module {
            #[allow(unused_imports, reason = "not every row has columns of all types")]
            use super::{Int, Num, Text, Time};
            row!(@ 0; $($columns)*);
        }
    };
}

row!(warehouse: YTD Num, TAX Num, NAME Text(10), STREET_1 Text(20), STREET_2 Text(20), CITY Text(20), STATE Text(2), ZIP Text(9),);
row!(district: NEXT_ORDER Int, YTD Num, TAX Num, NAME Text(10), STREET_1 Text(20), STREET_2 Text(20), CITY Text(20),
    STATE Text(2), ZIP Text(9),);
row!(customer: BALANCE Num, YTD_PAYMENT Num, PAYMENT_COUNT Num, DELIVERY_COUNT Num, DATA Text(500), FIRST Text(16),
    MIDDLE Text(2), LAST Text(16), STREET_1 Text(20), STREET_2 Text(20), CITY Text(20), STATE Text(2), ZIP Text(9),
    PHONE Text(16), SINCE Time, CREDIT Text(2), CREDIT_LIMIT Num, DISCOUNT Num,);
row!(customer_name: CUSTOMER Int,);
row!(history: CUSTOMER Int, CUSTOMER_DISTRICT Int, CUSTOMER_WAREHOUSE Int, DISTRICT Int, WAREHOUSE Int, DATE Time,
    AMOUNT Num, DATA Text(24),);
row!(order: CARRIER Int, CUSTOMER Int, ENTRY Time, LINES Num, ALL_LOCAL Num,);
row!(order_line: DELIVERY Time, ITEM Int, SUPPLY_WAREHOUSE Int, QUANTITY Num, AMOUNT Num, DISTRICT_INFO Text(24),);
row!(item: IMAGE Int, NAME Text(24), PRICE Num, DATA Text(50),);
row!(stock: QUANTITY Num, YTD Num, ORDER_COUNT Num, REMOTE_COUNT Num, DISTRICT_1 Text(24), DISTRICT_2 Text(24),
    DISTRICT_3 Text(24), DISTRICT_4 Text(24), DISTRICT_5 Text(24), DISTRICT_6 Text(24), DISTRICT_7 Text(24),
    DISTRICT_8 Text(24), DISTRICT_9 Text(24), DISTRICT_10 Text(24), DATA Text(50),);

/// The stock's text for each district.
pub(crate) const STOCK_DISTRICTS: [Text; 10] = [
    stock::DISTRICT_1,
    stock::DISTRICT_2,
    stock::DISTRICT_3,
    stock::DISTRICT_4,
    stock::DISTRICT_5,
    stock::DISTRICT_6,
    stock::DISTRICT_7,
    stock::DISTRICT_8,
    stock::DISTRICT_9,
    stock::DISTRICT_10,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_do_not_overlap_and_keys_compare_as_their_numbers() {
        let mut row = [0xff; stock::BYTES];
        stock::DATA.set(&mut row, &[b'x'; 80]);
        stock::DISTRICT_10.set(&mut row, b"ten");
        stock::QUANTITY.set(&mut row, 7.0);
        assert_eq!(stock::DATA.get(&row), [b'x'; 50]);
        assert_eq!((stock::DISTRICT_10.get(&row), stock::QUANTITY.get(&row)), (&b"ten"[..], 7.0));
        assert_eq!(stock::BYTES, 4 * 8 + 10 * 26 + 52);
        assert!(Key::of(&[1, 300]).bytes() < Key::of(&[2, 5]).bytes());
        let name = Key::of(&[1, 2]).name(b"BAR");
        assert!(name.bytes() < Key::of(&[1, 2]).name(b"BARBAR").bytes());
        assert_eq!(number_of(name.bytes(), 1), 2);
    }
}
