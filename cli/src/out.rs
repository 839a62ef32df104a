//! The only module that writes to the terminal: data to stdout, everything else to stderr.

use std::io::{self, BufRead as _, BufWriter, IsTerminal, Read as _, Write};
use std::time::Duration;

use carlos_bucket::Context;
use carlos_protocol::copy::is_driving;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::screen::Screen;

/// Whether stdout is a terminal, which decides the default format of rows.
#[must_use]
pub fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Writes a command's result to stdout: every byte as it is, except that nothing drives a terminal.
///
/// A reader that went away (`| head`) has had what it wanted, so a broken pipe is not a failure.
pub fn data(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    let mut stdout = BufWriter::with_capacity(STDOUT_BUFFER, io::stdout().lock());
    let written = pass(stdout_is_terminal(), &mut stdout, write).and_then(|()| stdout.flush());
    // Whatever the buffer still holds could not be written; dropping it must not try again.
    let _ = stdout.into_parts();
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::unexpected(format!("could not write the result: {error}.")))
        }
        _ => Ok(()),
    }
}

fn pass(
    to_terminal: bool,
    out: &mut dyn Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    if !to_terminal {
        return write(out);
    }
    let mut screen = Screen::before(out);
    write(&mut screen)?;
    screen.finish()
}

/// Writes one JSON object and a line break to stdout.
pub fn json(object: &impl serde::Serialize) -> Result<(), Failure> {
    data(|out| {
        serde_json::to_writer(&mut *out, object)?;
        out.write_all(b"\n")
    })
}

/// Writes lines of text to stdout, with control characters escaped.
pub fn lines(text: impl IntoIterator<Item = String>) -> Result<(), Failure> {
    data(|out| {
        for line in text {
            writeln!(out, "{}", visible(&line))?;
        }
        Ok(())
    })
}

/// Says a line on stderr. A stderr nobody can write to is no reason to fail.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", visible(line));
}

/// Shows a command-line error or help text where clap wants it.
pub fn show_clap(error: &clap::Error) {
    let _ = error.print();
}

/// Asks for a secret on the terminal without showing it, or reads one line when there is none.
///
/// Reads on a thread of its own, so that Ctrl-C still works; the terminal shows what is typed again
/// as soon as this is dropped.
pub async fn secret(prompt: &str, context: &Context) -> io::Result<Zeroizing<String>> {
    let hidden = if io::stdin().is_terminal() { Some(Hidden::begin(prompt)?) } else { None };
    let reading = context.spawn_blocking(|| {
        let mut line = Zeroizing::new(String::new());
        io::stdin().lock().take(MAX_SECRET).read_line(&mut line).map(|_| line)
    });
    let line = reading.await.expect("reading a line does not panic");
    drop(hidden);
    line
}

/// A terminal that does not show what is typed, until this is dropped.
struct Hidden {
    #[cfg(unix)]
    original: rustix::termios::Termios,
}

impl Hidden {
    #[cfg(unix)]
    fn begin(prompt: &str) -> io::Result<Self> {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
        let original = tcgetattr(io::stdin())?;
        let mut hidden = original.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        write!(io::stderr().lock(), "{prompt}")?;
        Ok(Self { original })
    }

    /// Elsewhere the secret would show, so it has to come another way.
    #[cfg(not(unix))]
    fn begin(_: &str) -> io::Result<Self> {
        Err(io::Error::other("use --token-file, or pipe the token in"))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        #[cfg(unix)]
        {
            use rustix::termios::{OptionalActions, tcsetattr};
            // There is nobody left to tell of a terminal that went away.
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.original);
        }
        // The line break that was typed did not show either.
        let _ = writeln!(io::stderr().lock());
    }
}

/// What a waiting person sees: a spinner on a terminal, one plain line anywhere else.
pub struct Waiting {
    spinner: Option<ProgressBar>,
}

impl Waiting {
    #[must_use]
    pub fn start(message: &str) -> Self {
        if !io::stderr().is_terminal() {
            say(message);
            return Self { spinner: None };
        }
        let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
        spinner.set_style(style.expect("the template is a constant that indicatif accepts"));
        spinner.set_message(visible(message));
        spinner.enable_steady_tick(SPINNER_TICK);
        Self { spinner: Some(spinner) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }
}

/// `text` with control characters escaped: what a tenant or a server wrote must not drive the
/// terminal. Line breaks and tabs stay.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            c if is_driving(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

/// Rows come in small writes; a page of memory per system call keeps 64 MiB of them quick.
const STDOUT_BUFFER: usize = 64 * 1024;

/// A token is well under this; a file piped by mistake is not read whole.
const MAX_SECRET: u64 = 4096;

/// Often enough to look alive, rarely enough to cost nothing.
const SPINNER_TICK: Duration = Duration::from_millis(120);

#[cfg(test)]
mod tests {
    use carlos_dbquery::Format;
    use carlos_dbquery::rows::{MAX_STREAM_BYTES, Value, Writer};

    use super::*;

    #[test]
    fn control_characters_are_shown_and_not_obeyed() {
        assert_eq!(visible("a\x1b[2Jb\r\u{9b}c\nd"), "a\\u{1b}[2Jb\\u{d}\\u{9b}c\nd");
        assert_eq!(visible("naïve 日本"), "naïve 日本");
    }

    /// Rows with one text in every format, as stdout gets them.
    fn printed(format: Format, text: &[u8], to_terminal: bool) -> Vec<u8> {
        let mut stream = Vec::new();
        let mut writer = Writer::begin(&mut stream, MAX_STREAM_BYTES, ["a\u{1b}b"]).unwrap();
        writer.row(&[Value::Text(text)]).unwrap();
        writer.finish().unwrap();
        let mut out = Vec::new();
        let print = |out: &mut dyn Write| {
            carlos_dbquery::render(format, &stream, out).map(drop).map_err(io::Error::other)
        };
        pass(to_terminal, &mut out, print).unwrap();
        out
    }

    #[test]
    fn no_format_drives_a_terminal_and_a_pipe_gets_every_byte() {
        let text = b"\x1b]0;owned\x07\x9b2J\xc2\x9b\xe2\x80\xae \r!";
        for format in [Format::Table, Format::Tsv, Format::Csv, Format::Json, Format::Ndjson] {
            let shown = String::from_utf8(printed(format, text, true)).unwrap();
            let bare = shown.replace("\r\n", "\n");
            assert!(!bare.chars().any(|c| is_driving(c) && c != '\n' && c != '\t'), "{shown:?}");
        }
        for format in [Format::Tsv, Format::Csv] {
            let piped = printed(format, b"\x1b\x07\x9b\xc2\x9b\xe2\x80\xae", false);
            let exact = b"\x1b\x07\x9b\xc2\x9b\xe2\x80\xae".as_slice();
            assert!(piped.windows(exact.len()).any(|bytes| bytes == exact), "{piped:?}");
        }
    }
}
