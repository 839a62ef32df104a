//! The one error of every command: an exit code and the sentence a person reads.

use carlos_protocol::copy::Message;

use crate::exit::Exit;

/// Why a command ended without its result.
///
/// The sentence is shown on stderr followed by its id, which names the entry in `docs/errors.md`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct Failure {
    pub exit: Exit,
    /// The copy table's id (`DBF-3`), when the sentence is a row of it.
    pub id: Option<String>,
    pub sentence: String,
    /// What a lower layer said, for whoever has to repair it.
    pub cause: Option<String>,
}

impl Failure {
    /// A failure whose sentence is the CLI's own.
    #[must_use]
    pub fn new(exit: Exit, sentence: impl Into<String>) -> Self {
        Self { exit, id: None, sentence: sentence.into(), cause: None }
    }

    /// The command line does not say what to do.
    #[must_use]
    pub fn usage(sentence: impl Into<String>) -> Self {
        Self::new(Exit::Usage, sentence)
    }

    /// A failure nothing in the protocol foresees: a broken disk, a console that talks nonsense.
    #[must_use]
    pub fn unexpected(sentence: impl Into<String>) -> Self {
        Self::new(Exit::Unexpected, sentence)
    }

    /// The same failure, with what a lower layer said about it.
    #[must_use]
    pub fn because(self, cause: impl ToString) -> Self {
        Self { cause: Some(cause.to_string()), ..self }
    }

    /// The text for stderr.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = self.sentence.clone();
        if let Some(id) = &self.id {
            text = format!("{text} ({id})");
        }
        if let Some(cause) = &self.cause {
            text = format!("{text}\ncause: {cause}");
        }
        text
    }
}

impl From<Message> for Failure {
    fn from(message: Message) -> Self {
        let exit = message.exit().unwrap_or(Exit::Unexpected);
        let id = (exit != Exit::Stopped).then(|| message.id().to_owned());
        Self { exit, id, sentence: message.as_str().to_owned(), cause: None }
    }
}

#[cfg(test)]
mod tests {
    use carlos_protocol::copy;

    use super::*;

    #[test]
    fn a_sentence_is_followed_by_its_id_and_its_cause() {
        let failure = Failure::from(copy::not_picked("uk"));
        assert_eq!(failure.exit, Exit::NoServer);
        assert!(failure.text().ends_with("try again in a few minutes. (DBF-3)"));
        assert_eq!(Failure::usage("no.").because("why").text(), "no.\ncause: why");
        assert_eq!(Failure::from(copy::stopped()).text(), "stopped");
    }
}
