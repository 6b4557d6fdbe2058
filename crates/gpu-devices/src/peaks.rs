//! What the pipes of a GPU can do at most: the table in data/gpu_peaks.yaml. A GPU that the table does not have gets no
//! estimate of operations, never the nearest one's.

use kernel_files::parse::ParseError;
use serde::Deserialize;

use super::Quantity;

/// Operations per clock and multiprocessor, by pipe.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peak {
    compute_capability: String,
    /// Any model when there is no such key.
    models: Option<Vec<String>>,
    cores: u32,
    fp64: Option<u32>,
    fp32: Option<u32>,
    fp16: Option<u32>,
    tensor_fp64: Option<u32>,
    tensor_tf32: Option<u32>,
    tensor_fp16: Option<u32>,
    tensor_fp8: Option<u32>,
    tensor_int8: Option<u32>,
    #[serde(default)]
    fp16_is_tensor: bool,
}

impl Peak {
    fn fits(&self, capability: &str, model: &str) -> bool {
        self.compute_capability == capability
            && self.models.as_ref().is_none_or(|all| all.iter().any(|part| model.contains(part.as_str())))
    }

    /// Multiprocessors of a GPU with this many CUDA cores; `None` when that is no multiple of the cores of one.
    pub fn multiprocessors(&self, cores: u32) -> Option<u32> {
        (self.cores > 0 && cores.is_multiple_of(self.cores)).then(|| cores / self.cores).filter(|n| *n > 0)
    }

    /// Whether the driver counts vector operations of 16 bits as those of tensor cores, too.
    pub fn counts_fp16_as_tensor(&self) -> bool {
        self.fp16_is_tensor
    }

    /// The pipe whose active time stands for this estimate, and its operations per clock and multiprocessor.
    pub fn of(&self, estimate: &'static Quantity) -> Option<u32> {
        let pipes = [
            (Quantity::FLOPS_FP64, self.fp64),
            (Quantity::FLOPS_FP32, self.fp32),
            (Quantity::FLOPS_FP16, self.fp16),
            (Quantity::FLOPS_TENSOR_FP64, self.tensor_fp64),
            (Quantity::FLOPS_TENSOR_HALF, self.tensor_fp16),
        ];
        pipes.into_iter().find(|(quantity, _)| *quantity == estimate)?.1
    }
}

/// The table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peaks(Vec<Peak>);

/// Parses a table.
pub fn parse_peaks(bytes: &[u8]) -> Result<Peaks, ParseError> {
    let table: Option<Vec<Peak>> = serde_yaml::from_slice(bytes)
        .map_err(|error| ParseError::new(error.location().map_or(1, |at| at.line()), "no table of peaks"))?;
    Ok(Peaks(table.unwrap_or_default()))
}

impl Peaks {
    /// The table that is built in.
    pub fn built_in() -> Self {
        // It is data of this crate and a test parses it; without it nothing is estimated and all else works.
        parse_peaks(include_bytes!("../data/gpu_peaks.yaml")).unwrap_or_default()
    }

    /// The rows of a site's file, followed by the built-in ones.
    pub fn with_site_bytes(bytes: &[u8]) -> Result<Self, String> {
        let Self(mut rows) = parse_peaks(bytes).map_err(|error| error.to_string())?;
        rows.extend(Self::built_in().0);
        Ok(Self(rows))
    }

    /// The row of a GPU by its compute capability (`9.0`) and product name.
    pub fn find(&self, capability: &str, model: &str) -> Option<&Peak> {
        self.0.iter().find(|row| row.fits(capability, model))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Peaks {
        parse_peaks(include_bytes!("../data/gpu_peaks.yaml")).unwrap()
    }

    #[test]
    fn a_sites_rows_go_before_those_that_are_built_in() {
        let site = b"- compute_capability: \"9.0\"\n  cores: 128\n  fp64: 7\n";
        let site = Peaks::with_site_bytes(site).unwrap();
        assert_eq!(site.find("9.0", "any").unwrap().fp64, Some(7));
        assert_eq!(site.find("8.0", "any"), table().find("8.0", "any"));
        assert!(Peaks::with_site_bytes(b"- cores: many\n").is_err());
    }

    #[test]
    fn products_with_the_clock_are_the_published_peaks() {
        let table = table();
        type Pipe = fn(&Peak) -> Option<u32>;
        const PIPES: [Pipe; 7] = [
            |p| p.fp64,
            |p| p.fp32,
            |p| p.fp16,
            |p| p.tensor_fp64,
            |p| p.tensor_tf32,
            |p| p.tensor_fp16,
            |p| p.tensor_fp8.or(p.tensor_int8),
        ];
        // Capability, cores, vector and tensor clock in GHz, and TFLOPS (TOPS) in the order above as data sheets have them.
        type Row = (&'static str, u32, f64, f64, [Option<f64>; 7]);
        let published: [Row; 7] = [
            ("7.0", 5120, 1.53, 1.53, [Some(7.8), Some(15.7), Some(31.4), None, None, Some(125.0), None]),
            ("7.5", 2560, 1.59, 1.59, [None, Some(8.1), None, None, None, Some(65.0), Some(130.0)]),
            ("8.0", 6912, 1.41, 1.41, [9.7, 19.5, 78.0, 19.5, 156.0, 312.0, 624.0].map(Some)),
            ("8.6", 10752, 1.74, 1.74, [None, Some(37.4), None, None, Some(74.8), Some(149.7), Some(299.3)]),
            ("8.9", 18176, 2.52, 2.52, [None, Some(91.6), None, None, Some(183.0), Some(362.0), Some(733.0)]),
            ("9.0", 16896, 1.98, 1.83, [33.5, 66.9, 133.8, 66.9, 494.7, 989.4, 1978.9].map(Some)),
            ("10.0", 18944, 1.98, 1.86, [37.5, 75.0, 150.0, 35.2, 1128.0, 2255.0, 4510.0].map(Some)),
        ];
        for (capability, cores, vector, tensor, peaks) in published {
            let row = table.find(capability, "any").unwrap();
            let sms = f64::from(row.multiprocessors(cores).unwrap());
            for (at, (pipe, peak)) in PIPES.iter().zip(peaks).enumerate() {
                let Some(peak) = peak else { continue };
                // Double precision tensor operations run at the vector clock on Hopper.
                let clock = if at < 3 || (at == 3 && capability == "9.0") { vector } else { tensor };
                let teraflops = sms * clock * f64::from(pipe(row).unwrap()) / 1000.0;
                assert!((teraflops / peak - 1.0).abs() < 0.02, "{capability} {at}: {teraflops} {peak}");
            }
        }
    }

    #[test]
    fn what_the_table_does_not_have_is_not_estimated() {
        let table = table();
        for unknown in ["", "9", "9.1", "6.0", "10.3", "12.0"] {
            assert_eq!(table.find(unknown, "NVIDIA H100"), None, "{unknown}");
        }
        let v100 = table.find("7.0", "Tesla V100").unwrap();
        assert_eq!(v100.of(Quantity::FLOPS_TENSOR_FP64), None);
        assert_eq!(v100.of(Quantity::FLOPS_FP64), Some(64));
        assert_eq!(v100.of(Quantity::BUSY), None);
        assert_eq!(
            (v100.multiprocessors(5120), v100.multiprocessors(100), v100.multiprocessors(0)),
            (Some(80), None, None)
        );
    }

    #[test]
    fn no_row_hides_another_and_models_are_distinguished() {
        let table = table();
        for (at, row) in table.0.iter().enumerate() {
            let found = table.find(&row.compute_capability, "any").unwrap();
            assert!(std::ptr::eq(found, row), "row {at}");
        }
        let two = b"- {compute_capability: '8.0', models: [A30], cores: 64, fp64: 1}\n- {compute_capability: '8.0', cores: 64}\n";
        let two = parse_peaks(two).unwrap();
        assert_eq!(two.find("8.0", "NVIDIA A30").unwrap().of(Quantity::FLOPS_FP64), Some(1));
        assert_eq!(two.find("8.0", "NVIDIA A100").unwrap().of(Quantity::FLOPS_FP64), None);
    }

    #[test]
    fn what_is_no_table_is_refused() {
        assert!(parse_peaks(b"").is_ok_and(|table| table == Peaks::default()));
        for bad in [
            &b"- {cores: 1}"[..],
            b"- {compute_capability: '9.0', cores: 1, fp65: 1}",
            b"x",
            b"\xff",
            b"- {compute_capability: '9.0', cores: -1}",
        ] {
            assert!(parse_peaks(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }
}
