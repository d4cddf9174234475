//! The live view: the result so far, redrawn while the watch runs.
//!
//! Failure: the terminal is restored on every exit path: the end, an error, a panic, two Ctrl-C.

use std::time::Duration;

use anyhow::Context;
use ratatui::DefaultTerminal;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Table};

use super::summary::{COLUMNS, LEGEND, Summary};
use forebay_measure::interrupt::{self, Cleanup};

/// Maximum number of files whose strips are shown.
const STRIPS_MAX: usize = 8;

/// The terminal, while the live view uses it.
#[derive(Debug)]
pub(super) struct Live {
    terminal: DefaultTerminal,
    _restore: Cleanup,
}

impl Live {
    /// Takes over the terminal.
    ///
    /// # Errors
    /// A system error.
    pub(super) fn begin() -> anyhow::Result<Live> {
        let restore = Cleanup::new(ratatui::restore);
        let terminal = ratatui::try_init().context("the terminal cannot be drawn on")?;
        Ok(Live { terminal, _restore: restore })
    }

    /// Draws `summary`, and the line `new` about the time since the last update.
    ///
    /// # Errors
    /// A system error.
    pub(super) fn draw(&mut self, summary: &Summary, new: &str) -> anyhow::Result<()> {
        self.terminal.draw(|frame| draw(frame, summary, new))?;
        Ok(())
    }

    /// Whether a key was pressed that ends the view. Ctrl-C is one, as the terminal is in raw mode.
    ///
    /// # Errors
    /// A system error.
    pub(super) fn should_end(&self) -> anyhow::Result<bool> {
        while event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()? {
                if is_interrupt(key) {
                    interrupt::request();
                    return Ok(true);
                }
                if matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// Whether `key` is Ctrl-C, after which a prediction does not start.
fn is_interrupt(key: KeyEvent) -> bool {
    key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c')
}

fn draw(frame: &mut Frame<'_>, summary: &Summary, new: &str) {
    let shown = summary.shown();
    let (strips, widest) = summary.strips(STRIPS_MAX);
    let files = shown.len() as u16 + 1;
    let heights = [
        Constraint::Length(3),
        Constraint::Max(files + 1),
        Constraint::Length(summary.devices.len() as u16 + 1),
        Constraint::Length(strips.len() as u16 + 1),
        Constraint::Min(1),
    ];
    let [head, table, devices, strip, foot] = Layout::vertical(heights).areas(frame.area());
    let head_lines = vec![Line::from(summary.title()).bold(), Line::from(new.to_owned())];
    frame.render_widget(Paragraph::new(head_lines), head);

    let rows: Vec<[String; COLUMNS.len()]> = shown.iter().map(|file| file.cells()).collect();
    let wide = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        Constraint::Length(cells.chain([COLUMNS[column].len()]).max().unwrap_or(0) as u16)
    };
    let right = |cells: &[String]| {
        let cells = cells.iter().enumerate().map(|(column, cell)| match column {
            0 => Line::from(cell.clone()),
            _ => Line::from(cell.clone()).right_aligned(),
        });
        Row::new(cells.collect::<Vec<_>>())
    };
    let header = right(&COLUMNS.map(str::to_owned)).bold();
    let widths: Vec<Constraint> = (0..COLUMNS.len()).map(wide).collect();
    frame.render_widget(
        Table::new(rows.iter().map(|row| right(row)), widths).header(header).column_spacing(2),
        table,
    );

    let device_lines = summary
        .devices
        .iter()
        .map(|device| Line::from(format!("{}: {}", device.name, device.sentence())));
    frame.render_widget(Paragraph::new(device_lines.collect::<Vec<_>>()), devices);

    let room = usize::from(strip.width).saturating_sub(widest + 2);
    let lines = strips.iter().map(|file| {
        let mut spans = vec![Span::from(format!("{:widest$}  ", file.short())).dim()];
        let letters: Vec<char> = file.newest(room).chars().collect();
        spans.extend(
            letters
                .chunk_by(|one, next| one == next)
                .map(|run| Span::styled(run.iter().collect::<String>(), coloured(run[0]))),
        );
        Line::from(spans)
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), strip);

    let mut last = vec![Line::from(LEGEND).dim(), Line::from("q: quit").dim()];
    last.extend(summary.remarks.iter().map(|remark| Line::from(remark.clone()).yellow()));
    frame.render_widget(Paragraph::new(last), foot);
}

/// The same colours as in a pool's trace.
fn coloured(letter: char) -> Style {
    match letter {
        'S' => Style::new().green(),
        'R' => Style::new().red(),
        '!' => Style::new().red().bold(),
        _ => Style::new().dim(),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::summary::sample;
    use super::*;

    #[test]
    fn only_control_c_interrupts() {
        let key = |letter, control| KeyEvent::new(KeyCode::Char(letter), control);
        assert!(is_interrupt(key('c', KeyModifiers::CONTROL)));
        assert!(!is_interrupt(key('c', KeyModifiers::NONE)));
        assert!(!is_interrupt(key('q', KeyModifiers::NONE)));
    }

    #[test]
    fn a_screen_of_any_size_shows_what_there_is_room_for() {
        let summary = sample();
        for (width, height) in [(1, 1), (20, 5), (80, 24), (200, 60), (300, 3)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, &summary, "12 reads")).unwrap();
            let text = terminal.backend().to_string();
            let shows = |what: &str| text.contains(what);
            assert!(width < 80 || height < 4 || shows("12 reads") && shows("orders.0"), "{text}");
            assert!(
                height < 60 || shows("RS.!RS.!") && shows("orders.19") && shows("q: quit"),
                "{text}"
            );
        }
    }
}
