//! Libraries of NVIDIA's driver: one whose GPUs are what a text says (`fake-nvml/fake-nvml.c`, where the words are explained),
//! and one that answers as a real one did (`fake-nvml/recorded-nvml.c`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::scratch::Scratch;

/// A fake of a test's own: loaded by its path it is another library than that of any other test.
#[derive(Debug)]
pub struct FakeNvml {
    dir: Scratch,
}

/// The library as the compiler makes it, by the macros that are defined.
fn compiled(source: &str, defines: &[&str]) -> Vec<u8> {
    static MADE: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    made.entry(format!("{source} {}", defines.join(" "))).or_insert_with(|| compile(source, defines)).clone()
}

fn compile(source: &str, defines: &[&str]) -> Vec<u8> {
    let dir = Scratch::new("fake-nvml-build");
    let library = dir.path().join("libnvidia-ml.so.1");
    // Rust needs a C compiler to link, so there is one.
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]).arg(&library);
    cc.args(defines.iter().map(|name| format!("-D{name}")));
    cc.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("fake-nvml").join(source)).args(["-ldl", "-lpthread"]);
    assert!(cc.status().expect("a C compiler").success(), "the fake library does not compile");
    fs::read(library).expect("the compiled library")
}

impl FakeNvml {
    /// One with everything, whose machine is `text`.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self::variant(&[], text)
    }

    /// One of an old driver: `OLD_DRIVER`, `NO_SHUTDOWN`, `NO_INIT`.
    ///
    /// # Panics
    /// If it does not compile.
    #[must_use]
    pub fn variant(defines: &[&str], text: &str) -> Self {
        let dir = Scratch::new("fake-nvml");
        fs::write(dir.path().join("libnvidia-ml.so.1"), compiled("fake-nvml.c", defines))
            .expect("the library's copy");
        let fake = Self { dir };
        fake.set(text);
        fake
    }

    /// Path of the library.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.dir.path().join("libnvidia-ml.so.1")
    }

    fn control(&self) -> PathBuf {
        self.dir.path().join("fake-nvml.conf")
    }

    /// Changes the machine, also while it runs.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn set(&self, text: &str) {
        self.set_bytes(text.as_bytes());
    }

    /// The same with text that is none.
    ///
    /// # Panics
    /// As [`FakeNvml::set`].
    pub fn set_bytes(&self, text: &[u8]) {
        let new = self.dir.path().join("new.conf");
        fs::write(&new, text).expect("the control file");
        fs::rename(new, self.control()).expect("the control file's place");
    }

    /// Counts the calls that are made in `during`, by function.
    ///
    /// # Panics
    /// If the file of calls cannot be written or read.
    pub fn calls<T>(&self, during: impl FnOnce() -> T) -> (T, BTreeMap<String, u32>) {
        let file = append(&self.control(), ".calls");
        fs::write(&file, "").expect("the file of calls");
        let result = during();
        let mut calls = BTreeMap::new();
        for name in fs::read_to_string(&file).expect("the file of calls").lines() {
            *calls.entry(name.to_owned()).or_default() += 1;
        }
        fs::remove_file(file).expect("the file of calls");
        (result, calls)
    }
}

/// A library that answers as one did that was recorded.
#[derive(Debug)]
pub struct RecordedNvml {
    dir: Scratch,
}

impl RecordedNvml {
    /// Answers of this recording, as they were in its first sample.
    ///
    /// # Panics
    /// If the library does not compile.
    #[must_use]
    pub fn new(recording: &str) -> Self {
        let dir = Scratch::new("recorded-nvml");
        fs::write(dir.path().join("libnvidia-ml.so.1"), compiled("recorded-nvml.c", &[]))
            .expect("the library's copy");
        fs::write(dir.path().join("nvml.txt"), recording).expect("the recording");
        let recorded = Self { dir };
        recorded.select(1);
        recorded
    }

    /// Path of the library.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.dir.path().join("libnvidia-ml.so.1")
    }

    /// From now on it answers as in this sample, counted from 1.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn select(&self, sample: u32) {
        fs::write(self.dir.path().join("nvml.at"), format!("at {sample}\n")).expect("the number of a sample");
    }
}

fn append(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
