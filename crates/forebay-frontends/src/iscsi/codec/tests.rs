use proptest::prelude::*;

use super::*;

fn request() -> impl Strategy<Value = Request> {
    let command = (any::<[bool; 3]>(), 0u8..8, any::<u32>(), any::<[u8; 16]>()).prop_map(
        |([is_final, reads, writes], attribute, expected_len, cdb)| {
            Request::Command(Command { is_final, reads, writes, attribute, expected_len, cdb })
        },
    );
    prop_oneof![
        any::<u32>().prop_map(|transfer_tag| Request::NopOut { transfer_tag }),
        command,
        (0u8..128, any::<u32>(), any::<u32>()).prop_map(|(function, referenced, referenced_sn)| {
            Request::TaskManagement { function, referenced, referenced_sn }
        }),
        (any::<[bool; 2]>(), any::<u32>()).prop_map(|([is_final, goes_on], transfer_tag)| {
            Request::Text { is_final, goes_on, transfer_tag }
        }),
        (any::<bool>(), any::<[u32; 3]>()).prop_map(
            |(is_final, [transfer_tag, data_sn, offset])| {
                Request::DataOut { is_final, transfer_tag, data_sn, offset }
            }
        ),
        (0u8..128, any::<u16>()).prop_map(|(reason, cid)| Request::Logout { reason, cid }),
    ]
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        request in request(),
        is_immediate: bool,
        words in 0usize..256,
        data_len in 0usize..1 << 24,
        lun: [u8; 8],
        tag: u32,
        sn: u32,
    ) {
        let cmd_sn = if matches!(request, Request::DataOut { .. }) { 0 } else { sn };
        let pdu = Pdu { is_immediate, ahs_len: 4 * words, data_len, lun, tag, cmd_sn, request };
        prop_assert_eq!(Pdu::decode(&pdu.encode()), pdu);
    }

    #[test]
    fn any_header_is_decoded(header in proptest::collection::vec(any::<u8>(), HEADER)) {
        let pdu = Pdu::decode(header.as_slice().try_into().unwrap());
        prop_assert!(pdu.data_len < 1 << 24 && pdu.ahs_len <= 1020);
    }
}

#[test]
fn residuals_say_what_was_not_transferred() {
    let check = |expected, actual, over, under| {
        assert_eq!(Residual::of(expected, actual), Residual { over, under });
    };
    check(512, 512, 0, 0);
    check(1024, 512, 0, 512);
    check(512, 1024, 512, 0);
    check(0, 1 << 40, u32::MAX, 0);
}

#[test]
fn a_read_that_ends_with_its_data_has_status_and_residual_there() {
    let mut out = Vec::new();
    let numbers = Numbers { stat_sn: 5, exp_cmd_sn: 6, max_cmd_sn: 7 };
    let end = Some((0, Residual::of(1024, 512)));
    let data = Answer::DataIn { is_final: true, end, data_sn: 2, offset: 512 };
    data.encode(9, numbers, 512, &mut out);
    assert_eq!(out[..8], [0x25, 0x83, 0, 0, 0, 0, 2, 0]);
    assert_eq!(out[16..24], [0, 0, 0, 9, 255, 255, 255, 255]);
    assert_eq!(out[24..36], [0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 7]);
    assert_eq!(out[36..], [0, 0, 0, 2, 0, 0, 2, 0, 0, 0, 2, 0]);
}
