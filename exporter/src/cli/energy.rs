//! Flags of the collector `energy`.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use redfish::{Address, Fingerprint, Limits, NoAddress, Options, Trust};

use super::flag;
use crate::collector::devices::energy::{IdlePowerSetting, parse_idle_power};

const IDLE_WATTS: &str = "collector.energy.idle-watts";
const URL: &str = "collector.energy.redfish-url";
const CREDENTIALS: &str = "collector.energy.redfish-credentials";
const CA: &str = "collector.energy.redfish-ca";
const CERTIFICATE: &str = "collector.energy.redfish-certificate";

pub(super) fn flags() -> Vec<Arg> {
    vec![
        flag(IDLE_WATTS)
            .value_name("DOMAIN[/SOCKET]=WATTS")
            .action(ArgAction::Append)
            .value_delimiter(',')
            .value_parser(parse_idle_power)
            .help(
                "Power of an idle package (or of a socket's memory: dram, of the whole node: node, or of what its own meter counts beyond packages, memory and GPUs: overhead), to be shared by the CPUs that jobs hold; without it the least that was seen while idle, until then what follows from the power under load",
            ),
        flag(URL).value_name("URL").help(
            "Redfish resource with the node's energy or power, an EnvironmentMetrics, Power or Sensor of its BMC, as in https://169.254.0.17/redfish/v1/Chassis/1/Power; asked every ten seconds (docs/energy.md)",
        ),
        file(CREDENTIALS, "User and password for it, user:password or in two lines; not readable by all users, read again when it changes"),
        file(CA, "CA certificates, PEM, one of which issued the BMC's certificate for the host of the URL").conflicts_with(CERTIFICATE),
        flag(CERTIFICATE)
            .value_name("FINGERPRINT")
            .value_parser(value_parser!(Fingerprint))
            .requires(URL)
            .help("sha256: and the SHA-256 of the BMC's certificate (openssl x509 -fingerprint -sha256), which is then accepted whatever it says, and no other"),
    ]
}

fn file(name: &'static str, help: &'static str) -> Arg {
    flag(name).value_name("FILE").value_parser(value_parser!(PathBuf)).requires(URL).help(help)
}

pub(super) fn idle_power(matches: &ArgMatches) -> Vec<IdlePowerSetting> {
    matches.get_many(IDLE_WATTS).into_iter().flatten().copied().collect()
}

/// `None` where the site names no resource. clap would repeat a URL that is refused, and with it a password in it.
pub(super) fn redfish(matches: &ArgMatches) -> Result<Option<Options>, clap::Error> {
    let refuse = |why: &str| clap::Error::raw(ErrorKind::ValueValidation, format!("--{URL}: {why}\n"));
    let Some(url) = matches.get_one::<String>(URL) else { return Ok(None) };
    let address: Address = url.parse().map_err(|why: NoAddress| refuse(&why.to_string()))?;
    let path = |name| matches.get_one::<PathBuf>(name).cloned();
    let pinned = matches.get_one::<Fingerprint>(CERTIFICATE).copied();
    let trust = pinned.map(Trust::Certificate).or_else(|| path(CA).map(Trust::Authorities));
    match (address.https, &trust) {
        (true, None) => return Err(refuse(&format!("https needs --{CA} or --{CERTIFICATE}"))),
        (false, Some(_)) => return Err(refuse("http has no certificate")),
        _ => {}
    }
    Ok(Some(Options { address, credentials: path(CREDENTIALS), trust, limits: Limits::default() }))
}
