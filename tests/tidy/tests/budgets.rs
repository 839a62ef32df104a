//! Function, file and line budgets over every Rust file of the tree.
#![allow(clippy::disallowed_macros)]

use std::fs;

use carlos_tests_tidy::{files, shown};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Longer functions hide their states from a reader; the best codebases of the field hold this.
const FUNCTION_LINES_MAX: usize = 70;
/// Nine functions in ten fit on a small screen.
const FUNCTION_LINES_P90: usize = 28;
/// A longer file is several subjects under one name.
const FILE_LINES_MAX: usize = 1_000;
/// Two files side by side on one screen.
const COLUMNS_MAX: usize = 100;

struct Function {
    name: String,
    lines: usize,
}

#[derive(Default)]
struct Functions(Vec<Function>);

impl Functions {
    fn add(&mut self, name: &syn::Ident, span: proc_macro2::Span, body: &syn::Block) {
        let lines = body.span().end().line + 1 - span.start().line;
        self.0.push(Function { name: name.to_string(), lines });
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.sig.ident, item.sig.span(), &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig.ident, item.sig.span(), &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.add(&item.sig.ident, item.sig.span(), body);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[test]
fn functions_stay_short() {
    let mut lengths = Vec::new();
    let mut long = Vec::new();
    for path in files(&[".rs"]) {
        let text = fs::read_to_string(&path).unwrap();
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", shown(&path)));
        let mut functions = Functions::default();
        functions.visit_file(&parsed);
        for function in functions.0 {
            if function.lines > FUNCTION_LINES_MAX {
                long.push(format!("{}: {} ({})", shown(&path), function.name, function.lines));
            }
            lengths.push(function.lines);
        }
    }
    assert!(long.is_empty(), "over {FUNCTION_LINES_MAX} lines:\n{}", long.join("\n"));
    lengths.sort_unstable();
    let p90 = lengths[lengths.len() * 9 / 10];
    println!("{} functions, median {}, p90 {p90}", lengths.len(), lengths[lengths.len() / 2]);
    assert!(p90 <= FUNCTION_LINES_P90, "nine in ten functions reach {p90} lines");
}

#[test]
fn files_stay_one_subject() {
    let long: Vec<_> = files(&[".rs"])
        .iter()
        .map(|path| (shown(path), fs::read_to_string(path).unwrap().lines().count()))
        .filter(|(_, lines)| *lines > FILE_LINES_MAX)
        .collect();
    assert!(long.is_empty(), "over {FILE_LINES_MAX} lines: {long:?}");
}

#[test]
fn lines_fit_the_width() {
    let mut wide = Vec::new();
    for path in files(&[".rs"]) {
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            if line.chars().count() > COLUMNS_MAX {
                wide.push(format!("{}:{}", shown(&path), number + 1));
            }
        }
    }
    assert!(wide.is_empty(), "over {COLUMNS_MAX} columns:\n{}", wide.join("\n"));
}

#[test]
fn nothing_is_left_unfinished() {
    // Spelled in halves, so that this file does not find itself.
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:")];
    let mut found = Vec::new();
    for path in files(&[".rs", ".md", ".sh", ".toml"]) {
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                found.push(format!("{}:{}", shown(&path), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "unfinished:\n{}", found.join("\n"));
}
