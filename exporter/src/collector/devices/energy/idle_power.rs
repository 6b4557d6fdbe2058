//! What a site says its nodes draw when they are idle.

use energy_meters::Domain;

/// An idle power that the site has set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdlePowerSetting {
    /// Of which domain.
    pub domain: Domain,
    /// Of which socket; `None` for each.
    pub socket: Option<u32>,
    /// Microwatts.
    pub microwatts: u64,
}

/// Parses `package=45`, `package/1=45.5`: watts of a domain, or of one socket of it.
pub fn parse_idle_power(text: &str) -> Result<IdlePowerSetting, String> {
    const FORM: &str = "not DOMAIN=WATTS or DOMAIN/SOCKET=WATTS";
    let (place, watts) = text.split_once('=').ok_or(FORM)?;
    let (domain, socket) = match place.split_once('/') {
        Some((domain, socket)) => {
            (domain, Some(socket.parse().map_err(|_| "not a socket's number".to_owned())?))
        }
        None => (place, None),
    };
    let domain = match domain {
        "package" => Domain::Package,
        "dram" => Domain::Memory,
        "node" => Domain::Node,
        "overhead" => Domain::Overhead,
        _ => return Err("only package, dram, node and overhead have an idle power".to_owned()),
    };
    let watts: f64 = watts.parse().map_err(|_| "not a number of watts".to_owned())?;
    if !(0.0..=100_000.0).contains(&watts) {
        return Err("not from 0 to 100000 watts".to_owned());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 10^11")]
    let microwatts = (watts * 1e6).round() as u64;
    Ok(IdlePowerSetting { domain, socket, microwatts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_power_is_of_a_domain_or_of_one_socket() {
        let power = |domain, socket, microwatts| Ok(IdlePowerSetting { domain, socket, microwatts });
        assert_eq!(parse_idle_power("package=45"), power(Domain::Package, None, 45_000_000));
        assert_eq!(parse_idle_power("package/1=45.5"), power(Domain::Package, Some(1), 45_500_000));
        assert_eq!(parse_idle_power("node=0"), power(Domain::Node, None, 0));
        assert_eq!(parse_idle_power("overhead=80"), power(Domain::Overhead, None, 80_000_000));
        assert_eq!(parse_idle_power("dram/0=7"), power(Domain::Memory, Some(0), 7_000_000));
        for bad in
            ["package", "core=5", "package/x=5", "package=-1", "package=nan", "package=inf", "=5", "package="]
        {
            assert!(parse_idle_power(bad).is_err(), "{bad}");
        }
    }
}
