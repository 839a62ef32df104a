//! The few elements of S3's XML that matter here, as a tree.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, Event};

/// S3's documents nest five deep; anything far beyond is not one of them.
const MAX_DEPTH: usize = 16;

/// One element with its text and children. Names come without their namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) children: Vec<Self>,
}

/// The text is not a whole XML document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not the XML that S3 describes")]
pub struct NotXml;

impl Element {
    /// Reads a document's one element.
    pub(crate) fn parse(text: &str) -> Result<Self, NotXml> {
        let mut reader = Reader::from_str(text);
        let mut open = vec![Self::default()];
        loop {
            match reader.read_event().map_err(|_| NotXml)? {
                Event::Start(start) => {
                    open.push(Self::named(start.local_name().as_ref()));
                    if open.len() > MAX_DEPTH {
                        return Err(NotXml);
                    }
                }
                Event::Empty(start) => {
                    last(&mut open)?.children.push(Self::named(start.local_name().as_ref()));
                }
                Event::Text(part) => {
                    last(&mut open)?.text += &part.decode().map_err(|_| NotXml)?;
                }
                Event::CData(part) => {
                    last(&mut open)?.text += &part.decode().map_err(|_| NotXml)?;
                }
                Event::GeneralRef(part) => last(&mut open)?.text.push_str(&resolved(&part)?),
                Event::End(_) => {
                    let mut closed = open.pop().ok_or(NotXml)?;
                    closed.text = closed.text.trim().to_owned();
                    last(&mut open)?.children.push(closed);
                }
                Event::Eof => break,
                Event::Decl(_) | Event::PI(_) | Event::DocType(_) | Event::Comment(_) => {}
            }
        }
        match (open.len(), open.pop().and_then(|mut root| root.children.pop())) {
            (1, Some(element)) => Ok(element),
            _ => Err(NotXml),
        }
    }

    /// The first child of this name.
    pub(crate) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// Every child of this name.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The text of the first child of this name.
    pub(crate) fn text_of(&self, name: &str) -> Option<&str> {
        self.child(name).map(|child| child.text.as_str())
    }

    fn named(name: &[u8]) -> Self {
        Self { name: String::from_utf8_lossy(name).into_owned(), ..Self::default() }
    }
}

fn last(open: &mut [Element]) -> Result<&mut Element, NotXml> {
    open.last_mut().ok_or(NotXml)
}

/// `&amp;` and `&#47;`, which some servers write for a slash.
fn resolved(part: &BytesRef<'_>) -> Result<String, NotXml> {
    if let Some(character) = part.resolve_char_ref().map_err(|_| NotXml)? {
        return Ok(character.to_string());
    }
    let name = part.decode().map_err(|_| NotXml)?;
    resolve_predefined_entity(&name).map(str::to_owned).ok_or(NotXml)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn elements_are_found_by_name_whatever_their_namespace() {
        let text = "<?xml version=\"1.0\"?>\n<s3:A xmlns:s3=\"x\"> <B>one</B><B/> <s3:C>a&amp;b\
                    &#47;</s3:C></s3:A>";
        let element = Element::parse(text).expect("a document");
        assert_eq!((element.name.as_str(), element.all("B").count()), ("A", 2));
        assert_eq!(element.text_of("B"), Some("one"));
        assert_eq!(element.text_of("C"), Some("a&b/"));
        assert_eq!(element.text_of("D"), None);
    }

    #[test]
    fn what_is_no_document_is_refused() {
        let deep = "<a>".repeat(MAX_DEPTH + 1) + &"</a>".repeat(MAX_DEPTH + 1);
        for bad in ["", "text", "<a>", "<a></b>", "</a>", "<a>&nosuch;</a>", &deep] {
            assert_eq!(Element::parse(bad), Err(NotXml), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd(text in ".{0,60}", tags in "[<>/&;a-c]{0,40}") {
            let _ = (Element::parse(&text), Element::parse(&tags));
        }
    }
}
