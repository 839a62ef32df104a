//! Which characters a terminal may not be given as they are.

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

/// Adds `bytes` to `shown` with unsafe characters escaped (`\n`, `\u{1b}`) and bytes that are not
/// UTF-8 as `\xff`.
pub(super) fn show(bytes: &[u8], shown: &mut String) {
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            show_char(character, shown);
        }
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
}

fn show_char(character: char, shown: &mut String) {
    match character {
        '\n' => shown.push_str("\\n"),
        '\t' => shown.push_str("\\t"),
        '\r' => shown.push_str("\\r"),
        unsafe_one if is_unsafe(unsafe_one) => {
            shown.push_str(&format!("\\u{{{:x}}}", u32::from(unsafe_one)));
        }
        safe => shown.push(safe),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_drives_a_terminal_is_escaped() {
        let mut shown = String::new();
        show(b"a\x1b[2J\x9b\xc2\x9b\n\t\r\0\x7f", &mut shown);
        assert_eq!(shown, r"a\u{1b}[2J\x9b\u{9b}\n\t\r\u{0}\u{7f}");
        shown.clear();
        show(
            "e\u{301}\u{202e}abc\u{2069}\u{feff}\u{e0041} \u{1f469}\u{200d}\u{1f52c}".as_bytes(),
            &mut shown,
        );
        assert_eq!(
            shown,
            "e\u{301}\\u{202e}abc\\u{2069}\\u{feff}\\u{e0041} \u{1f469}\u{200d}\u{1f52c}"
        );
    }
}
