//! Two facts of a certificate that rustls does not give: the end of its validity, and its alternative names.
//!
//! This reads just enough DER (X.690) to find them in an RFC 5280 certificate. The bytes may come from any client:
//! nothing is read beyond its length, and anything unexpected is an error.
//!
//! Why by hand: rustls-webpki gives neither the end of validity nor e-mail addresses. For these two facts, x509-cert 0.3
//! adds eight crates and 86 KB to a binary, x509-parser 0.18 thirty-four crates and 128 KB.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// id-ce-subjectAltName, 2.5.29.17.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// The fields of a certificate that are used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The last second of its validity, in Unix time.
    pub(crate) not_after: i64,
    /// DNS names, e-mail addresses, URIs and IP addresses, as text.
    pub(crate) alt_names: Vec<String>,
}

/// Reads a DER certificate.
pub(crate) fn facts(certificate: &[u8]) -> Option<Facts> {
    let mut outer = Der(Der(certificate).expect(SEQUENCE)?);
    let mut body = Der(outer.expect(SEQUENCE)?);
    body.optional(VERSION);
    body.expect(INTEGER)?; // serial number
    body.expect(SEQUENCE)?; // signature algorithm
    body.expect(SEQUENCE)?; // issuer
    let mut validity = Der(body.expect(SEQUENCE)?);
    validity.next()?;
    let (tag, not_after) = validity.next()?;
    let not_after = unix_time(tag, not_after)?;
    body.expect(SEQUENCE)?; // subject
    body.expect(SEQUENCE)?; // public key
    let mut alt_names = Vec::new();
    while let Some((tag, content)) = body.next() {
        if tag == EXTENSIONS {
            let mut extensions = Der(Der(content).expect(SEQUENCE)?);
            while let Some((_, extension)) = extensions.next() {
                read_extension(extension, &mut alt_names)?;
            }
        }
    }
    body.0.is_empty().then_some(Facts { not_after, alt_names })
}

fn read_extension(extension: &[u8], alt_names: &mut Vec<String>) -> Option<()> {
    let mut extension = Der(extension);
    if extension.expect(OBJECT_ID)? != SUBJECT_ALT_NAME {
        return Some(());
    }
    let mut value = extension.next()?;
    if value.0 != OCTET_STRING {
        value = extension.next()?; // behind the `critical` flag
    }
    let mut names = Der(Der(value.1).expect(SEQUENCE)?);
    while let Some((tag, name)) = names.next() {
        match tag {
            // rfc822Name, dNSName, uniformResourceIdentifier: IA5String.
            0x81 | 0x82 | 0x86 if name.is_ascii() => {
                alt_names.push(String::from_utf8(name.to_vec()).ok()?);
            }
            0x87 => alt_names.push(ip_address(name)?.to_string()),
            _ => {}
        }
    }
    names.0.is_empty().then_some(())
}

fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).ok().map(|bytes| Ipv4Addr::from(bytes).into());
    let v6 = || <[u8; 16]>::try_from(bytes).ok().map(|bytes| Ipv6Addr::from(bytes).into());
    v4().or_else(v6)
}

/// The rest of a run of DER elements.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The tag and content of the next element. `None` at the end, and where the bytes are no DER.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (tag, rest) = self.0.split_first()?;
        let (first, mut rest) = rest.split_first()?;
        let mut length = usize::from(*first);
        if length >= 0x80 {
            // 0x80 would be BER's indefinite length; more than four bytes are more than any certificate.
            let (bytes, behind) =
                rest.split_at_checked(length & 0x7f).filter(|(b, _)| matches!(b.len(), 1..=4))?;
            length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
            rest = behind;
        }
        let (content, behind) = rest.split_at_checked(length)?;
        self.0 = behind;
        Some((*tag, content))
    }

    fn expect(&mut self, wanted: u8) -> Option<&'a [u8]> {
        self.next().filter(|(tag, _)| *tag == wanted).map(|(_, content)| content)
    }

    fn optional(&mut self, wanted: u8) {
        if self.0.first() == Some(&wanted) {
            self.next();
        }
    }
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`, the only forms that RFC 5280 §4.1.2.5 allows.
fn unix_time(tag: u8, text: &[u8]) -> Option<i64> {
    let digits = std::str::from_utf8(text.strip_suffix(b"Z")?).ok()?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let year_digits = match tag {
        UTC_TIME => 2,
        GENERALIZED_TIME => 4,
        _ => return None,
    };
    let (year, rest) = digits.split_at_checked(year_digits)?;
    let mut year: i64 = year.parse().ok()?;
    if tag == UTC_TIME {
        year += if year < 50 { 2000 } else { 1900 };
    }
    let pair = |nth: usize| rest.get(nth * 2..nth * 2 + 2)?.parse::<i64>().ok();
    let (month, day, hour, minute, second) = (pair(0)?, pair(1)?, pair(2)?, pair(3)?, pair(4)?);
    if rest.len() != 10 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days since 1970-01-01 in the Gregorian calendar, with years that begin in March so that the leap day is last.
    let years = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = years * 365 + years / 4 - years / 100 + years / 400 + day_of_year - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    fn certificate(alt_names: Vec<SanType>) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = alt_names;
        params.not_after = rcgen::date_time_ymd(2031, 3, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn validity_and_every_kind_of_name_are_read() {
        let der = certificate(vec![
            SanType::DnsName("node.site".try_into().unwrap()),
            SanType::Rfc822Name("ops@site".try_into().unwrap()),
            SanType::URI("spiffe://site/prometheus".try_into().unwrap()),
            SanType::IpAddress("192.0.2.1".parse().unwrap()),
            SanType::IpAddress("2001:db8::1".parse().unwrap()),
        ]);
        let names = ["node.site", "ops@site", "spiffe://site/prometheus", "192.0.2.1", "2001:db8::1"];
        let wanted = Facts { not_after: 1_930_089_600, alt_names: names.map(str::to_owned).to_vec() };
        assert_eq!(facts(&der), Some(wanted));
        assert_eq!(facts(&certificate(vec![])).unwrap().alt_names, Vec::<String>::new());
    }

    #[test]
    fn both_forms_of_time() {
        for (tag, text, wanted) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "500101000000Z", Some(-631_152_000)),
            (GENERALIZED_TIME, "20000229120000Z", Some(951_825_600)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (UTC_TIME, "7001010000Z", None),
            (UTC_TIME, "700101000000", None),
            (UTC_TIME, "701301000000Z", None),
            (UTC_TIME, "7001010000+1Z", None),
            (INTEGER, "700101000000Z", None),
        ] {
            assert_eq!(unix_time(tag, text.as_bytes()), wanted, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_damaged_certificate_is_never_a_panic(at in 0_usize..400, byte in any::<u8>(), cut in 0_usize..400) {
            let mut der = certificate(vec![SanType::DnsName("a".try_into().unwrap())]);
            let length = der.len();
            prop_assert_eq!(facts(&der[..cut % length]), None);
            der[at % length] = byte;
            facts(&der);
        }

        #[test]
        fn any_bytes_are_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            facts(&bytes);
        }
    }
}
