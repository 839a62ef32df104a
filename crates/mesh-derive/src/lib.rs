//! `#[derive(Packet)]` for `routemesh`.
#![warn(missing_docs)]

use proc_macro::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{DeriveInput, Error, LitStr, Result};

/// The longest packet name: one byte holds its length on a link.
const NAME_BYTES: usize = 255;

/// Makes a serde type a packet, encoded as JSON. The name on the wire is written out, because a
/// Rust type may be renamed and a deployed peer may not:
///
/// ```ignore
/// #[derive(Serialize, Deserialize, Packet)]
/// #[packet(name = "join-match")]
/// struct JoinMatch { player: u64 }
/// ```
#[proc_macro_derive(Packet, attributes(packet))]
pub fn packet(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(input: &DeriveInput) -> Result<proc_macro2::TokenStream> {
    let name = packet_name(input)?;
    let ident = &input.ident;
    let (generics, types, bounds) = input.generics.split_for_impl();
    Ok(quote! {
        impl #generics ::routemesh::Body for #ident #types #bounds {
            const CONTENT: ::routemesh::Content<'static> = ::routemesh::Content::Json;

            fn encode(&self) -> ::core::result::Result<::routemesh::Bytes, ::routemesh::BodyError> {
                ::routemesh::packet::encode_json(self)
            }

            fn decode(
                bytes: ::routemesh::Bytes,
            ) -> ::core::result::Result<Self, ::routemesh::BodyError> {
                ::routemesh::packet::decode_json(&bytes)
            }
        }

        impl #generics ::routemesh::Packet for #ident #types #bounds {
            const NAME: &'static str = #name;
        }
    })
}

fn packet_name(input: &DeriveInput) -> Result<LitStr> {
    let mut name = None;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("packet")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("name") {
                return Err(meta.error("only `name = \"...\"` is known here"));
            }
            name = Some(meta.value()?.parse::<LitStr>()?);
            Ok(())
        })?;
    }
    let name = name.ok_or_else(|| {
        Error::new(input.span(), "a packet needs its name: #[packet(name = \"...\")]")
    })?;
    match name.value().len() {
        1..=NAME_BYTES => Ok(name),
        _ => Err(Error::new(name.span(), "a packet name has 1 to 255 bytes")),
    }
}
