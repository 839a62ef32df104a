//! Messages that wait for, or run in, the handlers of one owner: a channel, or node direct
//! (decisions 14 to 16).

mod mailbox;
mod owner;

pub(crate) use mailbox::{Full, Mailbox};
pub(crate) use owner::{Job, Owner, ReplyTo, answer_failure};
