use super::*;

/// What OpenSSL 3.0 says first, to `db.example`, but for its padding: 227 zeros.
const CLIENT_HELLO: &str = "1603010200010001fc030353a4896774aea8d330db5c9bd09d1d1fd65646539e\
     3aa885e31b8fb1082dd31e20fb35aadf8cdbe5c858932852b4e074675c962150\
     ac291b76f5415711d00ef0240024130213031301c02cc030c02bc02fcca9cca8\
     c024c028c023c027009f009e006b006700ff0100018f0000000f000d00000a64\
     622e6578616d706c65000b000403000102000a00160014001d0017001e001900\
     1801000101010201030104002300000016000000170000000d002a0028040305\
     030603080708080809080a080b08040805080604010501060103030301030204\
     0205020602002b00050403040303002d00020101003300260024001d0020e827\
     01d8c2f5c3ac6082ef020bfd399ca7bfcb3ebb9eaa4a86fa6835458b7a180015\
     00e3";
const CLIENT_HELLO_BYTES: usize = 517;

/// The answer of RFC 8448, section 3.
const SERVER_HELLO: &str = "160303005a020000560303a6af06a4121860dc5e6e60249cd34c95930c8ac5cb14\
     34dac155772ed3e2692800130100002e00330024001d0020c9828876112095fe66762bdbf7c672e156d6cc253b83\
     3df1dd69b1b04e751f0f002b00020304";

/// A MySQL 8 client asks for TLS.
const MYSQL_SSL_REQUEST: &str =
    "2000000185aeff1900000001080000000000000000000000000000000000000000000000";

/// An SMB 3.1.1 client's encrypted message: 52 bytes of header, AES-128-GCM, and what follows.
const SMB_ENCRYPTED: &str = "000000bcfd534d42a1b0c3d4e5f60718293a4b5c6d7e8f900100000000000000\
     00000000000000008800000000000100490000180000000\
     0f3a15c7790";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().filter(char::is_ascii_hexdigit).collect();
    let pairs = digits.chunks_exact(2);
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16);
    pairs.map(|pair| byte(pair).expect("hexadecimal")).collect()
}

fn client_hello() -> Vec<u8> {
    let mut hello = bytes(CLIENT_HELLO);
    hello.resize(CLIENT_HELLO_BYTES, 0);
    hello
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

const TLS: TrafficClass = TrafficClass::Excluded(Exclusion::Tls);

/// The class after each of the blocks that an end sees.
fn classes(blocks: &[&[u8]]) -> Vec<TrafficClass> {
    let mut class = TrafficClass::Unknown;
    let judge = |block: &&[u8]| {
        class = class.after(block);
        class
    };
    blocks.iter().map(judge).collect()
}

#[test]
fn encrypted_flows_are_known_by_their_first_bytes() {
    let ssh = b"SSH-2.0-OpenSSH_9.9\r\n";
    assert_eq!(classes(&[&[0x16, 0x03]]), [TLS]);
    assert_eq!(classes(&[&client_hello(), b"plain text"]), [TLS, TLS]);
    assert_eq!(classes(&[&bytes(SERVER_HELLO)]), [TLS]);
    let is_ssh = TrafficClass::Excluded(Exclusion::Ssh);
    assert_eq!(classes(&[ssh]), [is_ssh]);
    let smb = TrafficClass::Excluded(Exclusion::Smb);
    assert_eq!(classes(&[&bytes(SMB_ENCRYPTED)]), [smb]);
    assert_eq!(classes(&[b"GET / HTTP/1.1\r\n"]), [TrafficClass::Ordinary]);
}

/// What a client says before its hello; what the server answers is in between.
#[test]
fn an_upgrade_to_tls_is_found_whatever_the_protocol() {
    let postgresql = bytes("0000000804d2162f");
    let ldap = [&bytes("301d02010177188016")[..], b"1.3.6.1.4.1.1466.20037"].concat();
    let xmpp = b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>";
    let upgrades: [(&str, &[&[u8]]); 8] = [
        ("PostgreSQL", &[&postgresql]),
        ("SMTP", &[b"EHLO a.example\r\n", b"STARTTLS\r\n"]),
        ("IMAP", &[b"a1 CAPABILITY\r\n", b"a2 STARTTLS\r\n"]),
        ("POP3", &[b"CAPA\r\n", b"STLS\r\n"]),
        ("FTP", &[b"AUTH TLS\r\n"]),
        ("LDAP", &[&ldap]),
        ("XMPP", &[b"<stream:stream to='a.example'>", xmpp]),
        (
            "HTTP CONNECT",
            &[b"CONNECT db.example:443 HTTP/1.1\r\n\r\n"],
        ),
    ];
    for (name, before) in upgrades {
        let client = client_hello();
        let mut blocks = before.to_vec();
        blocks.push(&client);
        let classes = classes(&blocks);
        assert_eq!(classes.last(), Some(&TLS), "{name}");
        assert!(!classes[..before.len()].contains(&TLS), "{name}");
    }
    // What a server says, if an end sees that alone.
    let answer = bytes(SERVER_HELLO);
    let seen = classes(&[b"220 2.0.0 Ready to start TLS\r\n", &answer]);
    assert_eq!(seen, [TrafficClass::Ordinary, TLS]);
}

#[test]
fn a_mysql_client_that_asks_for_tls_is_known_with_and_without_its_hello() {
    let request = bytes(MYSQL_SSL_REQUEST);
    let with_hello = [request.clone(), client_hello()].concat();
    assert_eq!(classes(&[&request]), [TLS]);
    assert_eq!(classes(&[&with_hello]), [TLS]);
    // A login without TLS is as long as its names, and has no such capability.
    let mut login = request.clone();
    login[5] &= !0x08;
    assert_eq!(classes(&[&login]), [TrafficClass::Ordinary]);
    let followed = [&request[..], b"something else"].concat();
    assert_eq!(classes(&[&followed]), [TrafficClass::Ordinary]);
    assert_eq!(
        classes(&[&request[..35]]),
        [TrafficClass::Ordinary],
        "cut short"
    );
}

#[test]
fn smb_turns_to_encryption_after_its_session_is_set_up() {
    let negotiate = bytes("000000d4fe534d4240000100000000000000");
    let smb = TrafficClass::Excluded(Exclusion::Smb);
    let seen = classes(&[&negotiate, &bytes(SMB_ENCRYPTED)]);
    assert_eq!(seen, [TrafficClass::Ordinary, smb]);
}

#[test]
fn postgresql_asks_for_gssapi_in_a_message_of_its_own() {
    let request = bytes("0000000804d21630");
    assert!(asks_for_gssapi(&request));
    assert!(!asks_for_gssapi(&bytes("0000000804d2162f")), "for TLS");
    assert!(!asks_for_gssapi(&request[..7]));
    assert!(consents_to_gssapi(b"G"));
    assert!(!consents_to_gssapi(b"N"));
    assert!(!consents_to_gssapi(b""));
}

#[test]
fn a_hello_in_the_middle_needs_all_of_its_header() {
    let hello = client_hello();
    let after_text = |block: &[u8]| TrafficClass::Ordinary.after(block);
    assert_eq!(after_text(&hello), TLS);
    for at in [0, 1, 5, 9] {
        let mut other = hello.clone();
        other[at] ^= 0x40;
        assert_eq!(after_text(&other), TrafficClass::Ordinary, "byte {at}");
    }
    for len in 0..11 {
        let class = after_text(&hello[..len]);
        assert_eq!(class, TrafficClass::Ordinary, "{len} bytes");
    }
    assert_eq!(after_text(&hello[..11]), TLS, "split anywhere behind it");
}

#[test]
fn records_are_found_whose_hello_began_no_block() {
    let record = |len: usize| {
        let header = [23, 3, 3, (len >> 8) as u8, len as u8];
        [&header[..], &noise(len)].concat()
    };
    let records = [record(16_401), record(900), record(16_401)].concat();
    for whole in [records.len(), 20_000, 10_000] {
        assert_eq!(classes(&[&records[..whole]]), [TLS], "{whole}");
    }
    let mut others = records.clone();
    others[16_406] = 80;
    assert_eq!(classes(&[&others]), [TrafficClass::FullEntropy]);
    assert_eq!(classes(&[&records[1..]]), [TrafficClass::FullEntropy]);
    let text = [&[23, 3, 3, 9, 9][..], &b"no record at all. ".repeat(100)].concat();
    assert_eq!(classes(&[&text]), [TrafficClass::Ordinary]);
}

#[test]
fn entropy_is_judged_block_by_block() {
    let text = b"once more, with feeling; ".repeat(100);
    let noise = noise(4096);
    let seen = classes(&[&text, &noise, b"too short to tell", &text]);
    let expected = [
        TrafficClass::Ordinary,
        TrafficClass::FullEntropy,
        TrafficClass::FullEntropy,
        TrafficClass::Ordinary,
    ];
    assert_eq!(seen, expected);
}
