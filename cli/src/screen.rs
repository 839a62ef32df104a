//! A terminal as an output: nothing that reaches it can drive it.

use std::fmt::Write as _;
use std::io::{self, Write};

use carlos_protocol::copy::is_driving;

/// Shows what would drive a terminal as `\u{1b}`, and bytes that are no text as `\x9b`. Line breaks
/// and tabs stay, so every format keeps its shape.
pub struct Screen<W> {
    inner: W,
    /// The begun character at the end of the last write, or a carriage return whose line break may
    /// follow: at most three bytes.
    held: Vec<u8>,
}

impl<W: Write> Screen<W> {
    /// A screen before `inner`, which is a terminal.
    pub fn before(inner: W) -> Self {
        Self { inner, held: Vec::new() }
    }

    /// Shows what was held, of which no more came.
    ///
    /// # Errors
    /// Whatever the terminal says.
    pub fn finish(mut self) -> io::Result<()> {
        let mut shown = String::new();
        for chunk in self.held.utf8_chunks() {
            chunk.valid().chars().for_each(|c| show(c, &mut shown));
            show_bytes(chunk.invalid(), &mut shown);
        }
        self.inner.write_all(shown.as_bytes())?;
        self.inner.flush()
    }
}

impl<W: Write> Write for Screen<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(bytes);
        let mut shown = String::with_capacity(self.held.len());
        let done = show_whole(&self.held, &mut shown);
        self.held.drain(..done);
        self.inner.write_all(shown.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Shows all whose meaning no later byte can change, and says how many bytes that was.
fn show_whole(bytes: &[u8], shown: &mut String) -> usize {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &bytes[done..];
        let (text, invalid) = match std::str::from_utf8(rest) {
            Ok(text) => (text, Some(0)),
            Err(error) => {
                let text = std::str::from_utf8(&rest[..error.valid_up_to()]);
                (text.expect("valid up to there"), error.error_len())
            }
        };
        let ends = done + text.len() == bytes.len();
        let open = usize::from(ends && text.ends_with('\r'));
        show_text(&text[..text.len() - open], shown);
        done += text.len() - open;
        let Some(invalid) = invalid.filter(|_| open == 0) else { break };
        show_bytes(&bytes[done..done + invalid], shown);
        done += invalid;
    }
    done
}

fn show_text(text: &str, shown: &mut String) {
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            // How a record of a CSV ends; alone it would write over its line.
            '\r' if characters.peek() == Some(&'\n') => shown.push(c),
            c => show(c, shown),
        }
    }
}

fn show(c: char, shown: &mut String) {
    match c {
        '\n' | '\t' => shown.push(c),
        c if is_driving(c) => shown.extend(c.escape_unicode()),
        c => shown.push(c),
    }
}

fn show_bytes(bytes: &[u8], shown: &mut String) {
    for byte in bytes {
        write!(shown, "\\x{byte:02x}").expect("a String takes every write");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn screen(writes: &[&[u8]]) -> String {
        let mut terminal = Vec::new();
        let mut screen = Screen::before(&mut terminal);
        writes.iter().for_each(|bytes| screen.write_all(bytes).unwrap());
        screen.finish().unwrap();
        String::from_utf8(terminal).unwrap()
    }

    #[test]
    fn what_drives_a_terminal_is_shown() {
        assert_eq!(screen(&[b"a\x1b[2J\x07\x9b1m"]), r"a\u{1b}[2J\u{7}\x9b1m");
        assert_eq!(screen(&["\u{9b}\u{202e}日本\tä".as_bytes()]), "\\u{9b}\\u{202e}日本\tä");
        assert_eq!(screen(&[b"a\rb\r\nc\r"]), "a\\u{d}b\r\nc\\u{d}");
        assert_eq!(screen(&[b"a\r", b"\nb\r", b"c\xe6\x97", b"\xa5\xe6"]), "a\r\nb\\u{d}c日\\xe6");
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_a_write_ends(
            writes in proptest::collection::vec(
                prop_oneof![
                    proptest::collection::vec(any::<u8>(), 0..6),
                    "[\r\n\u{1b}\u{9b}\u{202e}é日]{0,4}".prop_map(String::into_bytes),
                ],
                0..12,
            ),
        ) {
            let parts: Vec<&[u8]> = writes.iter().map(Vec::as_slice).collect();
            let shown = screen(&parts);
            prop_assert_eq!(&shown, &screen(&[&writes.concat()]));
            let bare = shown.replace("\r\n", "\n");
            prop_assert!(!bare.chars().any(|c| is_driving(c) && c != '\n' && c != '\t'));
        }
    }
}
