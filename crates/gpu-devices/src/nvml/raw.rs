//! What nvml-wrapper lacks, through its bindings: fields with a scope, signed values, events with their part,
//! activity samples whose memory is used again. Functions are taken from the loaded library one by one and may be
//! absent; the panicking methods of the bindings are not called. NVML may be called from any thread (nvml.h, "Thread
//! safety").
#![allow(
    unsafe_code,
    reason = "NVML is a C library; this is the only module that calls it without the wrapper"
)]

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, FieldIdScheme, Nvml};
use nvml_wrapper_sys::bindings as sys;

/// The library that is loaded by default.
pub(super) const DEFAULT_LIBRARY: &str = "libnvidia-ml.so.1";

/// The library, loaded and initialised. It is shut down with the last thing that holds it.
#[derive(Debug)]
pub(super) struct Library {
    nvml: Nvml,
}

/// A GPU, or a part of one, as the library knows it until it is shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle(sys::nvmlDevice_t);

// SAFETY: the pointer is an opaque name that only NVML looks behind, and NVML may be called from any thread.
unsafe impl Send for Handle {}

/// A value as the driver typed it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    /// With how many bits it has.
    Unsigned(u64, u32),
    /// Signed.
    Signed(i64),
    /// Floating point.
    Float(f64),
}

/// A field and which of several of its kind (a link, a module) it is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    /// `NVML_FI_…` as in drivers before 580.82.
    pub(super) id: u32,
    /// `scopeId`.
    pub(super) scope: u32,
}

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) device: Handle,
    /// `nvmlEventType…`
    pub(super) kind: u64,
    /// An Xid's code.
    pub(super) data: u64,
    /// GPU instance and compute instance that it is of.
    pub(super) part: (Option<u32>, Option<u32>),
}

/// The identifier that this driver gives to a field: 580.82 renumbered those from 251 to 273 (NVML's known issues:
/// "Field ids").
pub(super) fn field_id(scheme: FieldIdScheme, id: u32) -> u32 {
    match (scheme, id) {
        (FieldIdScheme::V13Update1, 251..=255) => id + 18,
        (FieldIdScheme::V13Update1, 256..=273) => id - 5,
        _ => id,
    }
}

fn number(kind: sys::nvmlValueType_t, value: sys::nvmlValue_t) -> Option<Number> {
    // SAFETY: the union was zeroed before the driver wrote the member of this type into it, and each member is a plain
    // number for which any bits are valid.
    let number = unsafe {
        match kind {
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_DOUBLE => Number::Float(value.dVal),
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT => Number::Unsigned(value.uiVal.into(), 32),
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG => Number::Unsigned(value.ulVal, 64),
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG => Number::Unsigned(value.ullVal, 64),
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_LONG_LONG => Number::Signed(value.sllVal),
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_INT => Number::Signed(value.siVal.into()),
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_SHORT => {
                Number::Unsigned(value.usVal.into(), 16)
            }
            _ => return None,
        }
    };
    Some(number)
}

impl Library {
    /// Loads and initialises it.
    pub(super) fn open(path: Option<&Path>) -> Result<Arc<Self>, NvmlError> {
        let path = path.map_or(OsStr::new(DEFAULT_LIBRARY), Path::as_os_str);
        // The wrapper shuts the library down when it is dropped, and panics where that function is missing: such a library
        // is not initialised at all.
        // SAFETY: what its initialisers do is NVIDIA's; an admin chose the file or the linker's search path has it.
        let loaded = unsafe { sys::NvmlLib::new(path) }?;
        nvml_sym(loaded.nvmlShutdown.as_ref())?;
        let nvml = Nvml::builder().lib_path(path).init()?;
        Ok(Arc::new(Self { nvml }))
    }

    /// The wrapper.
    pub(super) fn nvml(&self) -> &Nvml {
        &self.nvml
    }

    /// What names a device of the wrapper.
    pub(super) fn handle(device: &Device<'_>) -> Handle {
        // SAFETY: it is only handed to the library that it comes from.
        Handle(unsafe { device.handle() })
    }

    /// The wrapper's device.
    pub(super) fn device(&self, handle: Handle) -> Device<'_> {
        // SAFETY: handles are used only within the session that got them from this library. NVML keeps them in tables
        // until it is shut down, those of MIG devices too (nvml.h, nvmlDeviceGetMigDeviceHandleByIndex).
        unsafe { Device::new(handle.0, &self.nvml) }
    }

    /// Asks for many fields in one call; the answers are in the order of the fields.
    pub(super) fn fields(
        &self,
        handle: Handle,
        fields: &[Field],
        answers: &mut Vec<Result<Number, NvmlError>>,
    ) -> Result<(), NvmlError> {
        let call = nvml_sym(self.nvml.lib().nvmlDeviceGetFieldValues.as_ref())?;
        let scheme = self.nvml.field_id_scheme();
        let blank = |field: &Field| sys::nvmlFieldValue_t {
            fieldId: field_id(scheme, field.id),
            scopeId: field.scope,
            timestamp: 0,
            latencyUsec: 0,
            valueType: 0,
            // An answer that the driver leaves out must not read as 0.
            nvmlReturn: sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED,
            value: sys::nvmlValue_t { ullVal: 0 },
        };
        let mut values: Vec<sys::nvmlFieldValue_t> = fields.iter().map(blank).collect();
        let count = i32::try_from(values.len()).map_err(|_| NvmlError::InvalidArg)?;
        // SAFETY: the pointer is to `count` initialised values.
        nvml_try(unsafe { call(handle.0, count, values.as_mut_ptr()) })?;
        answers.clear();
        answers.extend(values.iter().map(|value| {
            nvml_try(value.nvmlReturn)?;
            number(value.valueType, value.value).ok_or(NvmlError::UnexpectedVariant(value.valueType))
        }));
        Ok(())
    }

    fn one<F>(&self, call: F, handle: Handle) -> Result<u32, NvmlError>
    where
        F: FnOnce(sys::nvmlDevice_t, *mut u32) -> sys::nvmlReturn_t,
    {
        let mut value = 0;
        nvml_try(call(handle.0, &raw mut value))?;
        Ok(value)
    }

    /// Number of the GPU instance that a MIG device is in.
    pub(super) fn gpu_instance(&self, handle: Handle) -> Result<u32, NvmlError> {
        let call = nvml_sym(self.nvml.lib().nvmlDeviceGetGpuInstanceId.as_ref())?;
        // SAFETY: the second argument is a valid place for the answer.
        self.one(|device, value| unsafe { call(device, value) }, handle)
    }

    /// Number of the compute instance that a MIG device is.
    pub(super) fn compute_instance(&self, handle: Handle) -> Result<u32, NvmlError> {
        let call = nvml_sym(self.nvml.lib().nvmlDeviceGetComputeInstanceId.as_ref())?;
        // SAFETY: the second argument is a valid place for the answer.
        self.one(|device, value| unsafe { call(device, value) }, handle)
    }

    /// Percent of time in which the JPEG decoder worked.
    pub(super) fn jpeg_utilization(&self, handle: Handle) -> Result<u32, NvmlError> {
        let call = nvml_sym(self.nvml.lib().nvmlDeviceGetJpgUtilization.as_ref())?;
        let mut period = 0;
        // SAFETY: both answers have a valid place.
        self.one(|device, value| unsafe { call(device, value, &raw mut period) }, handle)
    }

    /// Percent of time in which the optical flow accelerator worked.
    pub(super) fn optical_flow_utilization(&self, handle: Handle) -> Result<u32, NvmlError> {
        let call = nvml_sym(self.nvml.lib().nvmlDeviceGetOfaUtilization.as_ref())?;
        let mut period = 0;
        // SAFETY: both answers have a valid place.
        self.one(|device, value| unsafe { call(device, value, &raw mut period) }, handle)
    }

    /// Degrees until the GPU slows down.
    pub(super) fn temperature_margin(&self, handle: Handle) -> Result<i32, NvmlError> {
        let call = nvml_sym(self.nvml.lib().nvmlDeviceGetMarginTemperature.as_ref())?;
        let size = size_of::<sys::nvmlMarginTemperature_t>();
        // NVML_STRUCT_VERSION(MarginTemperature, 1) of nvml.h.
        let version = u32::try_from(size).map_err(|_| NvmlError::InvalidArg)? | (1 << 24);
        let mut margin = sys::nvmlMarginTemperature_t { version, marginTemperature: 0 };
        // SAFETY: the structure is of the version that it says.
        nvml_try(unsafe { call(handle.0, &raw mut margin) })?;
        Ok(margin.marginTemperature)
    }

    /// Memory as (total, used, free), by the call of drivers before 510.
    pub(super) fn memory_before_510(&self, handle: Handle) -> Result<(u64, u64, u64), NvmlError> {
        let call = nvml_sym(self.nvml.lib().nvmlDeviceGetMemoryInfo.as_ref())?;
        let mut memory = sys::nvmlMemory_t { total: 0, free: 0, used: 0 };
        // SAFETY: the second argument is a valid place for the answer.
        nvml_try(unsafe { call(handle.0, &raw mut memory) })?;
        Ok((memory.total, memory.used, memory.free))
    }

    /// Whether activity can be measured (GPM: Hopper and later).
    pub(super) fn measures_activity(&self, handle: Handle) -> Result<bool, NvmlError> {
        let call = nvml_sym(self.nvml.lib().nvmlGpmQueryDeviceSupport.as_ref())?;
        let mut support = sys::nvmlGpmSupport_t { version: 1, isSupportedDevice: 0 };
        // SAFETY: the structure is of the version that it says.
        nvml_try(unsafe { call(handle.0, &raw mut support) })?;
        Ok(support.isSupportedDevice != 0)
    }

    /// Takes an activity sample of a GPU, or of one of its GPU instances.
    pub(super) fn activity(
        &self,
        handle: Handle,
        gpu_instance: Option<u32>,
        into: &mut ActivitySample,
    ) -> Result<(), NvmlError> {
        let lib = self.nvml.lib();
        let code = match gpu_instance {
            None => {
                let call = nvml_sym(lib.nvmlGpmSampleGet.as_ref())?;
                // SAFETY: the sample was allocated by this library and is nobody else's, `into` being exclusive.
                unsafe { call(handle.0, into.sample) }
            }
            Some(instance) => {
                let call = nvml_sym(lib.nvmlGpmMigSampleGet.as_ref())?;
                // SAFETY: as above.
                unsafe { call(handle.0, instance, into.sample) }
            }
        };
        nvml_try(code)
    }

    /// What happened between two samples, by metric in the order of `metrics`: 210 of them at most.
    pub(super) fn activity_between(
        &self,
        earlier: &ActivitySample,
        later: &ActivitySample,
        metrics: &[u32],
    ) -> Result<Vec<Result<f64, NvmlError>>, NvmlError> {
        let call = nvml_sym(self.nvml.lib().nvmlGpmMetricsGet.as_ref())?;
        // SAFETY: a structure of numbers and pointers, for which zeros are valid.
        let mut get: Box<sys::nvmlGpmMetricsGet_t> = Box::new(unsafe { std::mem::zeroed() });
        get.version = sys::NVML_GPM_METRICS_GET_VERSION;
        get.sample1 = earlier.sample;
        get.sample2 = later.sample;
        for (slot, metric) in get.metrics.iter_mut().zip(metrics) {
            slot.metricId = *metric;
            slot.nvmlReturn = sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED;
        }
        let asked = metrics.len().min(get.metrics.len());
        get.numMetrics = u32::try_from(asked).map_err(|_| NvmlError::InvalidArg)?;
        // SAFETY: both samples were allocated by this library and live; the array has room for `numMetrics`.
        nvml_try(unsafe { call(&raw mut *get) })?;
        let returned = get.metrics.iter().take(asked);
        Ok(returned.map(|metric| nvml_try(metric.nvmlReturn).map(|()| metric.value)).collect())
    }
}

/// The driver's memory for one activity sample, used again and again.
#[derive(Debug)]
pub(super) struct ActivitySample {
    sample: sys::nvmlGpmSample_t,
    library: Arc<Library>,
}

// SAFETY: an allocation of NVML, which may be called from any thread; it is written through an exclusive borrow only.
unsafe impl Send for ActivitySample {}

impl ActivitySample {
    /// Allocates it.
    pub(super) fn new(library: &Arc<Library>) -> Result<Self, NvmlError> {
        let lib = library.nvml.lib();
        nvml_sym(lib.nvmlGpmSampleFree.as_ref())?;
        let call = nvml_sym(lib.nvmlGpmSampleAlloc.as_ref())?;
        let mut sample = std::ptr::null_mut();
        // SAFETY: the argument is a valid place for the answer.
        nvml_try(unsafe { call(&raw mut sample) })?;
        Ok(Self { sample, library: library.clone() })
    }
}

impl Drop for ActivitySample {
    fn drop(&mut self) {
        if let Ok(call) = self.library.nvml.lib().nvmlGpmSampleFree.as_ref() {
            // SAFETY: it was allocated by this library, which is not shut down while `library` is held, and is not used
            // after this.
            unsafe { call(self.sample) };
        }
    }
}

/// Receives the events of the devices that were added.
#[derive(Debug)]
pub(super) struct Events {
    set: sys::nvmlEventSet_t,
    library: Arc<Library>,
}

// SAFETY: an opaque pointer of NVML, which may be called from any thread.
unsafe impl Send for Events {}

/// A part of the GPU was made or removed (nvml.h, nvmlEventMigConfigChange).
pub(super) const MIG_CHANGED: u64 = 0x100;
/// An Xid.
pub(super) const XID: u64 = sys::nvmlEventTypeXidCriticalError as u64;

impl Events {
    /// Of no device yet.
    pub(super) fn new(library: &Arc<Library>) -> Result<Self, NvmlError> {
        let lib = library.nvml.lib();
        nvml_sym(lib.nvmlEventSetFree.as_ref())?;
        let call = nvml_sym(lib.nvmlEventSetCreate.as_ref())?;
        let mut set = std::ptr::null_mut();
        // SAFETY: the argument is a valid place for the answer.
        nvml_try(unsafe { call(&raw mut set) })?;
        Ok(Self { set, library: library.clone() })
    }

    /// Subscribes to Xids and repartitioning of a device, as far as it supports them.
    pub(super) fn add(&mut self, handle: Handle) -> Result<(), NvmlError> {
        let lib = self.library.nvml.lib();
        let supported = nvml_sym(lib.nvmlDeviceGetSupportedEventTypes.as_ref())?;
        let mut kinds = 0;
        // SAFETY: the second argument is a valid place for the answer.
        nvml_try(unsafe { supported(handle.0, &raw mut kinds) })?;
        let wanted = kinds & (XID | MIG_CHANGED);
        if wanted == 0 {
            return Err(NvmlError::NotSupported);
        }
        let call = nvml_sym(lib.nvmlDeviceRegisterEvents.as_ref())?;
        // SAFETY: the set was made by this library and is freed with `self` alone.
        nvml_try(unsafe { call(handle.0, wanted, self.set) })
    }

    /// The next event that is there; it is not waited for.
    pub(super) fn next(&mut self) -> Result<Option<Event>, NvmlError> {
        const WHOLE: u32 = u32::MAX;
        let call = nvml_sym(self.library.nvml.lib().nvmlEventSetWait_v2.as_ref())?;
        let mut data = sys::nvmlEventData_t {
            device: std::ptr::null_mut(),
            eventType: 0,
            eventData: 0,
            gpuInstanceId: WHOLE,
            computeInstanceId: WHOLE,
        };
        // SAFETY: the set was made by this library; the second argument is a valid place for the answer.
        match nvml_try(unsafe { call(self.set, &raw mut data, 0) }) {
            Ok(()) => Ok(Some(Event {
                device: Handle(data.device),
                kind: data.eventType,
                data: data.eventData,
                part: (
                    Some(data.gpuInstanceId).filter(|id| *id != WHOLE),
                    Some(data.computeInstanceId).filter(|id| *id != WHOLE),
                ),
            })),
            Err(NvmlError::Timeout) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if let Ok(call) = self.library.nvml.lib().nvmlEventSetFree.as_ref() {
            // SAFETY: as for a sample's memory.
            unsafe { call(self.set) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_by_their_type() {
        for (kind, bits, expected) in [
            (0, 2.5f64.to_bits(), Some(Number::Float(2.5))),
            (1, 0xffff_ffff_0000_0007, Some(Number::Unsigned(7, 32))),
            (2, 0x1_ffff_ffff, Some(Number::Unsigned(0x1_ffff_ffff, 64))),
            (3, u64::MAX, Some(Number::Unsigned(u64::MAX, 64))),
            (4, u64::MAX, Some(Number::Signed(-1))),
            (5, 0xffff_fffb, Some(Number::Signed(-5))),
            (6, 0x1_0009, Some(Number::Unsigned(9, 16))),
            (7, 1, None),
        ] {
            assert_eq!(number(kind, sys::nvmlValue_t { ullVal: bits }), expected, "{kind}");
        }
    }

    #[test]
    fn fields_that_were_numbered_anew_are_asked_for_by_the_drivers_number() {
        for (id, old, new) in [
            (250, 250, 250),
            (251, 251, 269),
            (255, 255, 273),
            (256, 256, 251),
            (273, 273, 268),
            (274, 274, 274),
        ] {
            assert_eq!(field_id(FieldIdScheme::V12, id), old);
            assert_eq!(field_id(FieldIdScheme::V13Update1, id), new);
        }
    }
}
