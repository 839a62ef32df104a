//! Which characters a terminal may not be given as they are.

use std::{fmt, io};

/// Whether a character can move the cursor, change state, reorder or hide text.
///
/// C0, DEL and C1 controls start escape sequences. Bidi marks and overrides reorder what is read.
/// Line separators, interlinear marks, tags, and invisible operators hide text or break lines.
/// Zero-width joiners stay: scripts and emoji need them.
pub(super) fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Writes `bytes` with unsafe characters escaped (`\n`, `\u{1b}`) and bytes that are not UTF-8 as
/// `\xff`.
pub(super) fn show(bytes: &[u8], shown: &mut impl fmt::Write) -> fmt::Result {
    for chunk in bytes.utf8_chunks() {
        chunk.valid().chars().try_for_each(|character| show_char(character, shown))?;
        chunk.invalid().iter().try_for_each(|byte| write!(shown, "\\x{byte:02x}"))?;
    }
    Ok(())
}

/// [`show`] straight into an output, so that no escaped copy of a long text is held.
pub(super) fn stream(bytes: &[u8], out: &mut impl io::Write) -> io::Result<()> {
    let mut text = Text { out, failed: None };
    match show(bytes, &mut text) {
        Ok(()) => Ok(()),
        Err(fmt::Error) => Err(text.failed.unwrap_or_else(|| io::ErrorKind::Other.into())),
    }
}

/// An output that takes text and keeps its own error, which [`fmt::Error`] cannot carry.
struct Text<'a, W> {
    out: &'a mut W,
    failed: Option<io::Error>,
}

impl<W: io::Write> fmt::Write for Text<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.out.write_all(text.as_bytes()).map_err(|error| {
            self.failed = Some(error);
            fmt::Error
        })
    }
}

fn show_char(character: char, shown: &mut impl fmt::Write) -> fmt::Result {
    match character {
        '\n' => shown.write_str("\\n"),
        '\t' => shown.write_str("\\t"),
        '\r' => shown.write_str("\\r"),
        _ if is_unsafe(character) => write!(shown, "\\u{{{:x}}}", u32::from(character)),
        _ => shown.write_char(character),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_drives_a_terminal_is_escaped() {
        let mut shown = String::new();
        show(b"a\x1b[2J\x9b\xc2\x9b\n\t\r\0\x7f", &mut shown).unwrap();
        assert_eq!(shown, r"a\u{1b}[2J\x9b\u{9b}\n\t\r\u{0}\u{7f}");
        shown.clear();
        show(
            "e\u{301}\u{202e}abc\u{2069}\u{feff}\u{e0041} \u{1f469}\u{200d}\u{1f52c}".as_bytes(),
            &mut shown,
        )
        .unwrap();
        assert_eq!(
            shown,
            "e\u{301}\\u{202e}abc\\u{2069}\\u{feff}\\u{e0041} \u{1f469}\u{200d}\u{1f52c}"
        );
    }
}
