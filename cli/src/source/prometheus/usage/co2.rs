//! CO2 by the factor that the rules record.

use prometheus_api::Sample;

use super::amounts::Counter;
use super::{Asking, LOOKBACK, Prometheus, Usage};
use crate::Failure;
use crate::source::prometheus::selector::range;

const FACTOR: &str = "jobledger:carbon_factor:grams_per_kwh";

impl Prometheus {
    /// The CO2 of energy by the factor of the rules, where no exporter counts it and the factor is the same all the time.
    pub(super) async fn add_co2(&self, asking: &Asking, usage: &mut Usage) -> Result<(), Failure> {
        if usage.rows.values().any(|used| used.amounts.contains_key(&Counter::Co2)) {
            return Ok(());
        }
        let cluster = &self.scope.cluster_label;
        let (factor, window) =
            (format!("{FACTOR}{}", self.scope.or_none(&[])), range(asking.until - asking.since));
        let (least, most) =
            (format!("min_over_time({factor}{window})"), format!("max_over_time({factor}{window})"));
        let at_start = format!("last_over_time({factor}{})", range(LOOKBACK));
        let by = |query: &str, of: &str| format!("{of} by ({cluster}) ({query})");
        let (least, most, at_start) = (by(&least, "min"), by(&most, "max"), by(&at_start, "max"));
        let (least, most, at_start) = tokio::try_join!(
            self.client.query(&least, asking.until),
            self.client.query(&most, asking.until),
            self.client.query(&at_start, asking.since + LOOKBACK),
        )?;
        let of = |answer: &[Sample], cluster: &str| {
            let of = |name: &str| {
                let is = |sample: &&Sample| {
                    sample.labels.get(&self.scope.cluster_label).unwrap_or_default() == name
                };
                answer.iter().find(is).map(|sample| sample.value)
            };
            of(cluster).or_else(|| of(""))
        };
        let mut varied = false;
        for ((cluster, _), used) in &mut usage.rows {
            let (Some(least), Some(most)) = (of(&least, cluster), of(&most, cluster)) else { continue };
            if of(&at_start, cluster).is_none() || most - least > most.abs() * 1e-9 {
                varied = true;
                continue;
            }
            let co2 =
                [(Counter::Co2, Counter::Energy), (Counter::Co2Unattributed, Counter::EnergyUnattributed)];
            for (co2, energy) in co2 {
                if let Some(joules) = used.amounts.get(&energy) {
                    used.amounts.insert(co2, joules / 3.6e6 * most);
                }
            }
        }
        if varied {
            let says = "CO2 is left out: its factor was not the same all the time. Exporters with --owner.co2-grams-per-kwh count it";
            usage.notes.push(says.to_owned());
        }
        Ok(())
    }
}
