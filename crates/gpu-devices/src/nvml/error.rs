//! What NVML's answers mean here.

use kernel_files::SourceError;
use nvml_wrapper::error::NvmlError;

/// What follows from an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// This GPU, driver or mode has no such thing.
    Absent,
    /// Supported, and without a value at the moment.
    Nothing,
    /// It is not for this process.
    Denied,
    /// The GPU cannot be asked any more; why.
    Down(&'static str),
    /// The driver has to be opened again.
    Reopen,
    /// Something else, of this call alone.
    Failed,
}

/// Newer drivers know codes that the wrapper does not (nvml.h, nvmlReturn_t).
const DEPRECATED: u32 = 26;
const VERSION_MISMATCH: u32 = 25;
const NOT_READY: u32 = 27;
const GPU_NOT_FOUND: u32 = 28;
const INVALID_STATE: u32 = 29;

/// Sorts the answer of a call about a GPU.
pub(super) fn meaning(error: &NvmlError) -> Meaning {
    match error {
        // An argument that is refused is a field, clock or version that this driver does not know: all else is ours.
        NvmlError::NotSupported
        | NvmlError::InvalidArg
        | NvmlError::FunctionNotFound
        | NvmlError::FailedToLoadSymbol(_)
        | NvmlError::UnexpectedVariant(DEPRECATED | VERSION_MISMATCH) => Meaning::Absent,
        NvmlError::NotFound
        | NvmlError::NoData
        | NvmlError::Timeout
        | NvmlError::UnexpectedVariant(NOT_READY | INVALID_STATE) => Meaning::Nothing,
        NvmlError::NoPermission | NvmlError::OperatingSystem => Meaning::Denied,
        NvmlError::GpuLost | NvmlError::UnexpectedVariant(GPU_NOT_FOUND) => Meaning::Down("lost"),
        NvmlError::ResetRequired => Meaning::Down("reset_required"),
        NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch => {
            Meaning::Reopen
        }
        _ => Meaning::Failed,
    }
}

/// Why the driver could not be opened, or has to be opened again; `library` is the loaded file.
pub(super) fn opening(error: &NvmlError, library: &str) -> SourceError {
    let failed = |says: String| SourceError::Driver { call: "nvmlInit_v2", says };
    match error {
        NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => {
            SourceError::Unsupported { needs: format!("{library}, which comes with NVIDIA's driver") }
        }
        NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => SourceError::Unsupported {
            needs: format!("a newer NVIDIA driver: {library} lacks what the exporter calls"),
        },
        NvmlError::DriverNotLoaded => SourceError::Unsupported {
            needs: "NVIDIA's kernel driver to be loaded (modprobe nvidia)".to_owned(),
        },
        NvmlError::NoPermission | NvmlError::OperatingSystem => {
            SourceError::Denied { what: "NVIDIA's driver".to_owned() }
        }
        NvmlError::LibRmVersionMismatch => failed(format!(
            "{library} and the loaded kernel module are of different versions: load the nvidia modules anew, or reboot"
        )),
        NvmlError::Uninitialized => failed("the driver was unloaded".to_owned()),
        NvmlError::UnexpectedVariant(code) => {
            failed(format!("error {code}, which is none that NVML 13.0 has"))
        }
        error => failed(error.to_string()),
    }
}

/// What a call was refused.
pub(super) fn denied(call: &'static str) -> SourceError {
    SourceError::Denied { what: call.to_owned() }
}

/// What a call answered.
pub(super) fn failed(call: &'static str, error: &NvmlError) -> SourceError {
    SourceError::Driver { call, says: error.to_string() }
}
