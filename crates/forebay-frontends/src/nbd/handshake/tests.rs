//! The handshake as a client sees it, and as a hostile client tries it.

use std::sync::Arc;

use forebay_nbd::flags::{ClientFlags, TransmissionFlags};
use forebay_nbd::greeting::Greeting;
use forebay_nbd::info::{BlockSizes, Info, InfoKind};
use forebay_nbd::option::{
    InfoRequest, MetaContextRequest, OptionHeader, OptionKind, encode_bare, encode_export_name,
};
use forebay_nbd::option_reply::{self, ExportNameReply, OptionReply, OptionReplyHeader};
use proptest::prelude::*;

use super::{CloseReason, Handshake, Negotiated, Outcome, options_max};
use crate::nbd::{Contexts, Export};

fn exports() -> Arc<[Export]> {
    let mut second = Export::new("logs", 1 << 20);
    second.read_only = true;
    second.description = "read-only logs".to_owned();
    Arc::new([Export::new("db", 1 << 30), second])
}

/// A handshake past the client's flags.
fn greeted() -> Handshake {
    let mut out = Vec::new();
    let mut handshake = Handshake::start(exports(), &mut out);
    assert_eq!(out.len(), Greeting::SIZE);
    assert_eq!(handshake.feed(&both_flags().to_bytes(), &mut out), Outcome::Continue);
    handshake
}

fn both_flags() -> ClientFlags {
    ClientFlags::FIXED_NEWSTYLE.with(ClientFlags::NO_ZEROES)
}

/// Replies as (kind, data).
fn replies(mut bytes: &[u8]) -> Vec<(OptionReply, Vec<u8>)> {
    let mut list = Vec::new();
    while let Some(header) = OptionReplyHeader::decode(bytes).unwrap() {
        let end = OptionReplyHeader::SIZE + header.len as usize;
        let reply = OptionReply::from_wire(header.reply).unwrap();
        list.push((reply, bytes[OptionReplyHeader::SIZE..end].to_vec()));
        bytes = &bytes[end..];
    }
    assert!(bytes.is_empty());
    list
}

/// The replies to one option of a handshake that goes on.
fn ask(handshake: &mut Handshake, option: &[u8]) -> Vec<(OptionReply, Vec<u8>)> {
    let mut out = Vec::new();
    assert_eq!(handshake.feed(option, &mut out), Outcome::Continue);
    replies(&out)
}

fn kinds(replies: &[(OptionReply, Vec<u8>)]) -> Vec<OptionReply> {
    replies.iter().map(|(kind, _)| *kind).collect()
}

fn bare(option: OptionKind) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_bare(option, &mut bytes);
    bytes
}

fn info(option: OptionKind, name: &str, wanted: &[InfoKind]) -> Vec<u8> {
    let mut bytes = Vec::new();
    InfoRequest::encode(option, name, wanted, &mut bytes);
    bytes
}

fn meta(option: OptionKind, name: &str, queries: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    MetaContextRequest::encode(option, name, queries, &mut bytes);
    bytes
}

fn go(handshake: &mut Handshake, name: &str) -> (usize, Negotiated, Vec<u8>) {
    let mut out = Vec::new();
    match handshake.feed(&info(OptionKind::Go, name, &[]), &mut out) {
        Outcome::Transmission { export, negotiated, leftover } => (export, negotiated, leftover),
        other => panic!("{other:?}"),
    }
}

#[test]
fn go_answers_size_flags_and_block_sizes() {
    let mut handshake = greeted();
    let mut bytes = info(OptionKind::Go, "logs", &[InfoKind::Name, InfoKind::Description]);
    bytes.extend_from_slice(b"request");
    let mut out = Vec::new();
    let outcome = handshake.feed(&bytes, &mut out);
    let negotiated = Negotiated::default();
    let leftover = b"request".to_vec();
    assert_eq!(outcome, Outcome::Transmission { export: 1, negotiated, leftover });
    let replies = replies(&out);
    let infos: Vec<_> = replies
        .iter()
        .filter(|(kind, _)| *kind == OptionReply::Info)
        .map(|(_, data)| Info::decode(data).unwrap())
        .collect();
    let flags = exports()[1].flags(false);
    assert!(flags.has(TransmissionFlags::READ_ONLY) && !flags.has(TransmissionFlags::SEND_TRIM));
    assert!(!flags.has(TransmissionFlags::SEND_DF), "that is of structured replies");
    let sizes = BlockSizes { minimum: 512, preferred: 4096, maximum: 32 << 20 };
    let expected = [
        Info::Export { size: 1 << 20, flags },
        Info::BlockSize(sizes),
        Info::Name("logs"),
        Info::Description("read-only logs"),
    ];
    assert_eq!(infos, expected);
    assert_eq!(replies.last().unwrap().0, OptionReply::Ack);
}

#[test]
fn info_does_not_end_the_handshake() {
    let mut handshake = greeted();
    let replies = ask(&mut handshake, &info(OptionKind::Info, "", &[]));
    assert_eq!(kinds(&replies), [OptionReply::Info, OptionReply::Info, OptionReply::Ack]);
    assert_eq!(go(&mut handshake, "").0, 0, "the default export is the first one");
}

#[test]
fn without_a_default_export_who_names_none_gets_none() {
    let mut handshake = Handshake { has_default: false, ..greeted() };
    let replies = ask(&mut handshake, &info(OptionKind::Go, "", &[]));
    assert_eq!(kinds(&replies), [OptionReply::ErrUnknown]);
    assert_eq!(go(&mut handshake, "db").0, 0);
}

#[test]
fn unknown_exports_are_refused_by_name() {
    let mut handshake = greeted();
    let replies = ask(&mut handshake, &info(OptionKind::Go, "nope", &[]));
    assert_eq!(kinds(&replies), [OptionReply::ErrUnknown]);
    let mut bytes = Vec::new();
    encode_export_name("nope", &mut bytes);
    let outcome = handshake.feed(&bytes, &mut Vec::new());
    assert_eq!(outcome, Outcome::Close(CloseReason::UnknownExport("nope".to_owned())));
}

#[test]
fn export_name_is_followed_by_zeroes_unless_both_sides_left_them_out() {
    for flags in [ClientFlags::FIXED_NEWSTYLE, both_flags()] {
        let mut out = Vec::new();
        let mut handshake = Handshake::start(exports(), &mut out);
        let mut bytes = flags.to_bytes().to_vec();
        encode_export_name("db", &mut bytes);
        out.clear();
        let outcome = handshake.feed(&bytes, &mut out);
        assert!(matches!(outcome, Outcome::Transmission { export: 0, .. }));
        let zeroes = if flags == both_flags() { 0 } else { ExportNameReply::ZEROES };
        assert_eq!(out.len(), ExportNameReply::SIZE + zeroes);
        assert_eq!(ExportNameReply::decode(&out).unwrap().size, 1 << 30);
    }
}

#[test]
fn list_names_every_export() {
    let replies = ask(&mut greeted(), &bare(OptionKind::List));
    let names: Vec<_> = replies[..2]
        .iter()
        .map(|(_, data)| option_reply::decode_server(data).unwrap().0.to_owned())
        .collect();
    assert_eq!(names, ["db", "logs"]);
    assert_eq!(kinds(&replies)[2..], [OptionReply::Ack]);
}

#[test]
fn what_is_not_supported_is_refused_and_the_handshake_goes_on() {
    let mut handshake = greeted();
    let unknown = OptionHeader { option: 4711, len: 3 };
    let mut with_data = unknown.to_bytes().to_vec();
    with_data.extend_from_slice(b"abc");
    for option in [bare(OptionKind::StartTls), bare(OptionKind::ExtendedHeaders), with_data] {
        assert_eq!(kinds(&ask(&mut handshake, &option)), [OptionReply::ErrUnsupported]);
    }
    assert_eq!(go(&mut handshake, "db").0, 0);
}

#[test]
fn abort_is_acknowledged() {
    let mut out = Vec::new();
    let outcome = greeted().feed(&bare(OptionKind::Abort), &mut out);
    assert_eq!(outcome, Outcome::Close(CloseReason::Abort));
    assert_eq!(kinds(&replies(&out)), [OptionReply::Ack]);
}

#[test]
fn meta_contexts_need_structured_replies() {
    let mut handshake = greeted();
    let set = meta(OptionKind::SetMetaContext, "db", &["base:allocation"]);
    assert_eq!(kinds(&ask(&mut handshake, &set)), [OptionReply::ErrInvalid]);
    assert_eq!(kinds(&ask(&mut handshake, &bare(OptionKind::StructuredReply))), [OptionReply::Ack]);
    let replies = ask(&mut handshake, &set);
    assert_eq!(kinds(&replies), [OptionReply::MetaContext, OptionReply::Ack]);
    let (id, name) = option_reply::decode_meta_context(&replies[0].1).unwrap();
    assert_eq!((id, name), (1, "base:allocation"));
    let (_, negotiated, _) = go(&mut handshake, "db");
    assert!(negotiated.structured_replies);
    assert_eq!(negotiated.contexts, Contexts { allocation: true, state: false });
}

#[test]
fn meta_context_queries_select_by_name_and_list_by_namespace() {
    let check = |option, queries: &[&str], expected: &[&str]| {
        let mut handshake = greeted();
        ask(&mut handshake, &bare(OptionKind::StructuredReply));
        let replies = ask(&mut handshake, &meta(option, "", queries));
        let names: Vec<_> = replies
            .iter()
            .filter(|(kind, _)| *kind == OptionReply::MetaContext)
            .map(|(_, data)| option_reply::decode_meta_context(data).unwrap().1.to_owned())
            .collect();
        assert_eq!(names, expected, "{option:?} {queries:?}");
    };
    let (list, set) = (OptionKind::ListMetaContext, OptionKind::SetMetaContext);
    let (base, ours) = ("base:allocation", "forebay:state");
    check(list, &[], &[base, ours]);
    check(list, &["base:"], &[base]);
    check(list, &["forebay:"], &[ours]);
    check(list, &["qemu:", "base:nothing", ""], &[]);
    check(set, &[], &[]);
    check(set, &["base:", ":"], &[]);
    check(set, &[ours, base, base], &[base, ours]);
}

#[test]
fn contexts_of_another_export_are_forgotten() {
    let mut handshake = greeted();
    ask(&mut handshake, &bare(OptionKind::StructuredReply));
    ask(&mut handshake, &meta(OptionKind::SetMetaContext, "logs", &["forebay:state"]));
    let (export, negotiated, _) = go(&mut handshake, "db");
    assert_eq!((export, negotiated.contexts), (0, Contexts::default()));
}

#[test]
fn a_failed_selection_forgets_the_one_before() {
    let mut handshake = greeted();
    ask(&mut handshake, &bare(OptionKind::StructuredReply));
    ask(&mut handshake, &meta(OptionKind::SetMetaContext, "db", &["forebay:state"]));
    let refused = ask(&mut handshake, &meta(OptionKind::SetMetaContext, "nope", &["x:y"]));
    assert_eq!(kinds(&refused), [OptionReply::ErrUnknown]);
    assert_eq!(go(&mut handshake, "db").1.contexts, Contexts::default());
}

#[test]
fn data_that_makes_no_sense_is_refused_and_the_handshake_goes_on() {
    let mut handshake = greeted();
    for option in [OptionKind::Go, OptionKind::List, OptionKind::StructuredReply] {
        let mut bytes = OptionHeader { option: option.wire(), len: 4 }.to_bytes().to_vec();
        bytes.extend_from_slice(&[0xff; 4]);
        assert_eq!(kinds(&ask(&mut handshake, &bytes)), [OptionReply::ErrInvalid]);
    }
    assert_eq!(go(&mut handshake, "db").0, 0);
}

#[test]
fn a_client_that_claims_4_gib_of_option_data_is_told_and_closed() {
    let header = OptionHeader { option: OptionKind::Go.wire(), len: u32::MAX };
    let mut out = Vec::new();
    let outcome = greeted().feed(&header.to_bytes(), &mut out);
    assert!(matches!(outcome, Outcome::Close(CloseReason::Invalid(_))));
    assert_eq!(kinds(&replies(&out)), [OptionReply::ErrTooBig]);
}

#[test]
fn a_client_that_never_chooses_is_closed() {
    let mut handshake = greeted();
    let count = options_max(exports().len());
    for _ in 0..count {
        ask(&mut handshake, &bare(OptionKind::List));
    }
    let outcome = handshake.feed(&bare(OptionKind::List), &mut Vec::new());
    assert_eq!(outcome, Outcome::Close(CloseReason::TooManyOptions(count)));
}

#[test]
fn a_client_that_lists_many_exports_may_ask_about_each() {
    let names: Vec<String> = (0..200).map(|n| format!("disk{n}")).collect();
    let exports = names.iter().map(|name| Export::new(name, 1 << 20)).collect();
    let mut out = Vec::new();
    let mut handshake = Handshake::start(exports, &mut out);
    assert_eq!(handshake.feed(&both_flags().to_bytes(), &mut out), Outcome::Continue);
    ask(&mut handshake, &bare(OptionKind::StructuredReply));
    assert_eq!(ask(&mut handshake, &bare(OptionKind::List)).len(), 201);
    for name in &names {
        ask(&mut handshake, &info(OptionKind::Info, name, &[InfoKind::Description]));
        ask(&mut handshake, &meta(OptionKind::ListMetaContext, name, &[]));
    }
    assert_eq!(go(&mut handshake, "disk199").0, 199);
}

#[test]
fn garbage_and_unknown_client_flags_close() {
    for bytes in [&b"\0\0\0\x07"[..], b"GET / HTTP/1.1\r\n"] {
        let mut handshake = Handshake::start(exports(), &mut Vec::new());
        let outcome = handshake.feed(bytes, &mut Vec::new());
        assert!(matches!(outcome, Outcome::Close(CloseReason::Invalid(_))));
    }
    let outcome = greeted().feed(b"GET / HTTP/1.1\r\n", &mut Vec::new());
    assert!(matches!(outcome, Outcome::Close(CloseReason::Invalid(_))));
}

proptest! {
    #[test]
    fn how_the_bytes_arrive_makes_no_difference(
        cuts in proptest::collection::vec(1usize..40, 1..20),
    ) {
        let mut bytes = both_flags().to_bytes().to_vec();
        bytes.extend(bare(OptionKind::StructuredReply));
        bytes.extend(bare(OptionKind::List));
        bytes.extend(meta(OptionKind::SetMetaContext, "db", &["base:allocation"]));
        bytes.extend(info(OptionKind::Go, "db", &[InfoKind::Name]));
        let mut whole = Vec::new();
        let mut handshake = Handshake::start(exports(), &mut whole);
        let expected = handshake.feed(&bytes, &mut whole);

        let mut out = Vec::new();
        let mut handshake = Handshake::start(exports(), &mut out);
        let mut cuts = cuts.into_iter().cycle();
        let mut rest = &bytes[..];
        let outcome = loop {
            let (piece, tail) = rest.split_at(cuts.next().unwrap().min(rest.len()));
            rest = tail;
            match handshake.feed(piece, &mut out) {
                Outcome::Continue => prop_assert!(!rest.is_empty()),
                outcome => break outcome,
            }
        };
        prop_assert_eq!(outcome, expected);
        prop_assert_eq!(out, whole);
    }
}
