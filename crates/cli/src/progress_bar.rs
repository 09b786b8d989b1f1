//! A progress bar on standard error, only where that is a terminal.

use std::io::{IsTerminal as _, Write as _};

/// Cells of the bar.
const CELLS: usize = 30;

/// One line that is drawn over and over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgressBar {
    shown: bool,
}

impl ProgressBar {
    /// A bar, if somebody watches standard error.
    pub(crate) fn on_terminal() -> Option<Self> {
        std::io::stderr()
            .is_terminal()
            .then_some(Self { shown: false })
    }

    /// Draws one step of progress.
    pub(crate) fn show(&mut self, done: Option<f64>, total: Option<f64>, message: &str) {
        let line = line(done, total, message);
        if !line.is_empty() {
            // Nobody is left to be told that the terminal is gone.
            let _ = write!(std::io::stderr(), "\r\x1b[2K{line}");
            let _ = std::io::stderr().flush();
            self.shown = true;
        }
    }

    /// Leaves no trace.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
            let _ = std::io::stderr().flush();
        }
    }
}

fn line(done: Option<f64>, total: Option<f64>, message: &str) -> String {
    // A message may come from anywhere; nothing in it may move the cursor.
    let message: String = message
        .chars()
        .filter(|c| !c.is_control())
        .take(60)
        .collect();
    match (done, total) {
        (Some(done), Some(total)) if total > 0.0 => {
            let share = (done / total).clamp(0.0, 1.0);
            let full = (share * CELLS as f64) as usize;
            let bar = format!("{}{}", "#".repeat(full), ".".repeat(CELLS - full));
            format!("[{bar}] {:3.0} % {message}", share * 100.0)
        }
        _ => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_the_share_and_cannot_be_made_to_move_the_cursor() {
        let half = line(Some(5.0), Some(10.0), "indexed\u{1b}[2J 5");
        assert_eq!(half, "[###############...............]  50 % indexed[2J 5");
        assert_eq!(line(Some(1.0), None, "on"), "on");
        assert_eq!(
            line(Some(30.0), Some(10.0), ""),
            format!("[{}] 100 % ", "#".repeat(30))
        );
    }
}
