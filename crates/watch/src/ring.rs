//! Pages of the kernel's trace ring buffer, and the layout of its events.
//!
//! Binary pages rather than `trace_pipe`: a line of text costs the kernel more to write, and this process more to read,
//! than everything else that is done for an event. A page is a timestamp, a length with flags, and consecutive events,
//! each with the time since the previous one. Worked example, an event of 8 bytes 5 ns after the page's timestamp: the
//! word `2 | 5 << 5`, for two words of data, and the data.
//!
//! Invariants:  [RNG-1] whatever the bytes are, reading ends, within the page
//! Failure:     a malformed page is read up to the malformed event.
//! Source:      the kernel's Documentation/trace/ring-buffer-design.rst, and the files header_page and header_event, in
//!              which the kernel describes its format.

/// Flag in a page's length: events were dropped before this page.
const MISSED: u64 = 1 << 31;

/// Bits of a page's length that are the length, in bytes.
const LENGTH: u64 = (1 << 20) - 1;

/// Special values of an event's length in words: length in the next word, padding, more bits of the time, absolute
/// time.
const LONG: u32 = 0;
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// Bits of time in an event's header word.
const TIME_BITS: u32 = 27;

/// Calls `each` with the time in ns and the data of each event of `page`; the first is at `head_bytes`. Returns whether
/// the kernel dropped events before this page.
pub(super) fn read(page: &[u8], head_bytes: usize, mut each: impl FnMut(u64, &[u8])) -> bool {
    let (Some(mut at), Some(length)) = (long(page, 0), word(page, 8)) else { return false };
    let length = u64::from(length);
    let end = head_bytes.saturating_add((length & LENGTH) as usize).min(page.len());
    let mut rest = page.get(head_bytes..end).unwrap_or_default();
    while let Some(head) = word(rest, 0) {
        let (kind, delta) = (head & 31, u64::from(head >> 5));
        let next = word(rest, 4);
        // In bytes after the header word.
        let data_bytes = match kind {
            PADDING if delta == 0 => break,
            LONG | PADDING => next.map_or(0, |bytes| bytes as usize),
            TIME_EXTEND | TIME_STAMP => 4,
            words => words as usize * 4,
        };
        let further = u64::from(next.unwrap_or(0)) << TIME_BITS | delta;
        at = match kind {
            TIME_EXTEND => at.wrapping_add(further),
            TIME_STAMP => further,
            _ => at.wrapping_add(delta),
        };
        // Each step is at least 4 bytes, and none goes beyond the end [RNG-1].
        let Some((whole, behind)) = rest.split_at_checked(data_bytes.saturating_add(4)) else {
            break;
        };
        match kind {
            LONG => each(at, whole.get(8..).unwrap_or_default()),
            PADDING | TIME_EXTEND | TIME_STAMP => {}
            _ => each(at, &whole[4..]),
        }
        rest = behind;
    }
    length & MISSED != 0
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Position of a field in an event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

impl Field {
    /// The field as a number; 0 if the event is too short.
    pub(super) fn of(self, event: &[u8]) -> u64 {
        let field = event.get(self.offset..self.offset + self.bytes).unwrap_or_default();
        match *field {
            [a] => a.into(),
            [a, b] => u16::from_ne_bytes([a, b]).into(),
            [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]).into(),
            _ => field.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)),
        }
    }

    /// The bytes of the field; empty if the event is too short.
    pub(super) fn bytes_of(self, event: &[u8]) -> &[u8] {
        event.get(self.offset..self.offset + self.bytes).unwrap_or_default()
    }
}

/// Layout of an event, from the kernel's `format` file.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// Type number at the start of each of its records.
    pub(super) id: u16,
    /// The fields that other events do not have, in order.
    fields: Vec<(String, Field)>,
}

impl Layout {
    /// Parses `format` or `header_page`; other lines are skipped.
    pub(super) fn parse(text: &str) -> Layout {
        let mut layout = Layout::default();
        for line in text.lines().map(str::trim) {
            if let Some(id) = line.strip_prefix("ID:") {
                layout.id = id.trim().parse().unwrap_or(0);
            }
            let Some(line) = line.strip_prefix("field:") else { continue };
            let mut parts = line.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default().rsplit(' ').next().unwrap_or_default();
            let name = name.split('[').next().unwrap_or_default();
            let mut numbers = [0, 0];
            for part in parts {
                for (number, prefix) in numbers.iter_mut().zip(["offset:", "size:"]) {
                    if let Some(value) = part.strip_prefix(prefix) {
                        *number = value.parse().unwrap_or(0);
                    }
                }
            }
            let [offset, bytes] = numbers;
            if !name.starts_with("common_") && name != "__syscall_nr" {
                layout.fields.push((name.to_owned(), Field { offset, bytes }));
            }
        }
        layout
    }

    pub(super) fn field(&self, name: &str) -> Option<Field> {
        self.fields.iter().find(|(it, _)| it == name).map(|(_, field)| *field)
    }

    /// Argument `index` of a system call: its event has the arguments as fields.
    pub(super) fn argument(&self, index: usize) -> Option<Field> {
        self.fields.get(index).map(|(_, field)| *field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAD: usize = 16;

    /// A page as the kernel writes it; each event has the time in ns since the previous one.
    fn page(at: u64, events: &[(u64, Vec<u8>)], flags: u64) -> Vec<u8> {
        let mut data = Vec::new();
        for (delta, payload) in events {
            let mut delta = *delta;
            if delta >= 1 << TIME_BITS {
                data.extend(((TIME_EXTEND | ((delta as u32) << 5)).to_ne_bytes()).iter());
                data.extend(((delta >> TIME_BITS) as u32).to_ne_bytes());
                delta = 0;
            }
            let words = payload.len() / 4;
            let head = (delta as u32) << 5;
            if (1..29).contains(&words) {
                data.extend((head | words as u32).to_ne_bytes());
            } else {
                data.extend(head.to_ne_bytes());
                data.extend((payload.len() as u32 + 4).to_ne_bytes());
            }
            data.extend(payload);
        }
        let length = data.len() as u64 | flags;
        [&at.to_ne_bytes()[..], &length.to_ne_bytes(), &data, &[0xff; 64]].concat()
    }

    proptest! {
        #[test]
        fn events_come_out_as_they_were_written(
            at in 0..1u64 << 60,
            events in prop::collection::vec(
                (0..1u64 << 40, (0usize..60).prop_flat_map(|words| prop::collection::vec(any::<u8>(), words * 4))),
                0..20,
            ),
            missed in any::<bool>(),
        ) {
            let page = page(at, &events, if missed { MISSED } else { 0 });
            let mut seen = Vec::new();
            let missed_events = read(&page, HEAD, |at, payload| seen.push((at, payload.to_vec())));
            let mut clock = at;
            let expected: Vec<_> = events.into_iter().map(|(delta, payload)| {
                clock += delta;
                (clock, payload)
            }).collect();
            prop_assert_eq!(seen, expected);
            prop_assert_eq!(missed_events, missed);
        }

        #[test]
        fn whatever_the_bytes_are_reading_ends_within_them(page in prop::collection::vec(any::<u8>(), 0..4096)) {
            let mut bytes = 0;
            read(&page, HEAD, |_, payload| bytes += payload.len());
            prop_assert!(bytes <= page.len(), "[RNG-1]");
        }
    }

    #[test]
    fn a_format_is_read_by_the_names_of_its_fields() {
        let layout = Layout::parse(
            "name: block_rq_issue\nID: 2104\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
             \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;\n\n\
             print fmt: \"%d\", REC->dev\n",
        );
        assert_eq!(layout.id, 2104);
        assert_eq!(layout.field("rwbs"), Some(Field { offset: 34, bytes: 10 }));
        assert_eq!(layout.field("common_pid"), None);
        let dev = layout.argument(0).unwrap();
        assert_eq!((dev.of(&[0, 0, 0, 0, 0, 0, 0, 0, 7, 1, 0, 0]), dev.of(&[1, 2])), (263, 0));
    }
}
