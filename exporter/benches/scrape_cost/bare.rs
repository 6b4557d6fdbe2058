//! The least that NVIDIA's library can be asked for the same answers: the same calls, by their addresses, and nothing else.

#![allow(unsafe_code, reason = "a C library, called without anything between")]

use std::collections::BTreeMap;
use std::ffi::{CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nvml_wrapper_sys::bindings as sys;

/// Every function is called with six register arguments: none of the library's has more, and surplus arguments are
/// ignored.
type Function = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> c_int;

/// Calls in the order in which they are made.
pub(crate) struct Bare {
    library: *mut c_void,
    calls: Vec<(Function, [usize; 6])>,
    /// Whatever is answered goes here; nobody looks at it.
    _room: Vec<Box<[u64]>>,
}

struct Maker {
    library: *mut c_void,
    room: Vec<Box<[u64]>>,
}

impl Maker {
    fn function(&self, name: &str) -> Function {
        let name = CString::new(name).unwrap();
        // SAFETY: the library is open; what is found is a function of the header.
        unsafe {
            let address = libc::dlsym(self.library, name.as_ptr());
            assert!(!address.is_null(), "{name:?}");
            std::mem::transmute::<*mut c_void, Function>(address)
        }
    }

    /// Room for an answer.
    fn room(&mut self, words: usize) -> usize {
        self.room.push(vec![0; words].into());
        self.room.last_mut().unwrap().as_mut_ptr() as usize
    }

    fn ask(&self, name: &str, arguments: [usize; 6]) {
        let function = self.function(name);
        // SAFETY: as below.
        let code = unsafe { call(function, arguments) };
        assert_eq!(code, 0, "{name}");
    }

    fn activity_sample(&mut self) -> usize {
        let at = self.room(1);
        self.ask("nvmlGpmSampleAlloc", [at, 0, 0, 0, 0, 0]);
        // SAFETY: the room was just made and has a pointer in it.
        unsafe { *(at as *const usize) }
    }

    /// The arguments of one call about a GPU.
    fn arguments(&mut self, name: &str, nth: u32, device: usize, samples: [usize; 2]) -> [usize; 6] {
        let (answer, more) = (self.room(4096), self.room(4));
        let nth = nth as usize;
        match name {
            "nvmlDeviceGetClockInfo" => [device, nth % 4, answer, 0, 0, 0],
            "nvmlDeviceGetTemperature" => [device, 0, answer, 0, 0, 0],
            "nvmlDeviceGetMarginTemperature" => {
                // SAFETY: the room is large enough; NVML_STRUCT_VERSION(MarginTemperature, 1).
                unsafe { *(answer as *mut u32) = 8 | 1 << 24 };
                [device, answer, 0, 0, 0, 0]
            }
            "nvmlDeviceGetMemoryInfo_v2" => {
                // SAFETY: as above; NVML_STRUCT_VERSION(Memory, 2).
                unsafe { *(answer as *mut u32) = 40 | 2 << 24 };
                [device, answer, 0, 0, 0, 0]
            }
            "nvmlDeviceGetSamples" => {
                // First how many there are, then what they are.
                let room = if nth.is_multiple_of(2) { 0 } else { answer };
                // SAFETY: as above.
                unsafe { *((more + 8) as *mut u32) = 1000 };
                [device, 1, 0, more, more + 8, room]
            }
            "nvmlDeviceGetFieldValues" => {
                for (at, id) in [83u32, 82, 186, 1].into_iter().enumerate() {
                    // SAFETY: as above; 40 bytes each.
                    unsafe { *((answer + 40 * at) as *mut u32) = id };
                }
                [device, 4, answer, 0, 0, 0]
            }
            "nvmlGpmSampleGet" => [device, samples[nth % 2], 0, 0, 0, 0],
            "nvmlGpmMetricsGet" => {
                // SAFETY: the room is large enough for the structure, of which all bits may be 0.
                let get = unsafe { &mut *(answer as *mut sys::nvmlGpmMetricsGet_t) };
                get.version = 1;
                get.numMetrics = 3;
                (get.sample1, get.sample2) = (samples[0] as _, samples[1] as _);
                get.metrics.iter_mut().zip(1..=3).for_each(|(metric, id)| metric.metricId = id);
                [answer, 0, 0, 0, 0, 0]
            }
            "nvmlDeviceGetUUID" => [device, answer, 96, 0, 0, 0],
            _ => [device, answer, more, 0, 0, 0],
        }
    }
}

/// # Safety
/// The arguments are those that the function's declaration has, and what they point to runs.
unsafe fn call(function: Function, arguments: [usize; 6]) -> c_int {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the caller's.
    unsafe { function(a, b, c, d, e, f) }
}

impl Bare {
    /// Opens the library and prepares these calls, by name and number for so many GPUs together.
    pub(crate) fn open(library: &Path, gpus: u32, calls: &BTreeMap<String, u32>) -> Self {
        let path = CString::new(library.as_os_str().as_bytes()).unwrap();
        // SAFETY: the fake library has no initialisers.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null());
        let mut maker = Maker { library, room: Vec::new() };
        maker.ask("nvmlInit_v2", [0; 6]);
        let set = maker.room(1);
        maker.ask("nvmlEventSetCreate", [set, 0, 0, 0, 0, 0]);
        let mut prepared = Vec::new();
        for gpu in 0..gpus {
            let at = maker.room(1);
            maker.ask("nvmlDeviceGetHandleByIndex_v2", [gpu as usize, at, 0, 0, 0, 0]);
            // SAFETY: the room has a device in it.
            let device = unsafe { *(at as *const usize) };
            let samples = [maker.activity_sample(), maker.activity_sample()];
            for sample in samples {
                maker.ask("nvmlGpmSampleGet", [device, sample, 0, 0, 0, 0]);
            }
            for (name, count) in calls.iter().filter(|(name, _)| *name != "nvmlEventSetWait_v2") {
                assert_eq!(count % gpus, 0, "{name}");
                for nth in 0..count / gpus {
                    prepared.push((maker.function(name), maker.arguments(name, nth, device, samples)));
                }
            }
        }
        let event = maker.room(8);
        // SAFETY: the room has a set in it.
        let set = unsafe { *(set as *const usize) };
        prepared.push((maker.function("nvmlEventSetWait_v2"), [set, event, 0, 0, 0, 0]));
        Self { library, calls: prepared, _room: maker.room }
    }

    /// Makes all calls once.
    pub(crate) fn run(&mut self) {
        for (function, arguments) in &self.calls {
            // SAFETY: the arguments were made for it and live as long as `self`.
            unsafe { call(*function, *arguments) };
        }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // SAFETY: nothing of the library is called after this.
        unsafe { libc::dlclose(self.library) };
    }
}
