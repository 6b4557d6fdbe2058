//! See `jobledger_testkit::stepd`.

fn main() -> std::process::ExitCode {
    jobledger_testkit::stepd::main()
}
