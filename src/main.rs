//! The `memlab` binary: arguments in, exit code out, nothing else.

fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(memlab::cli::main().code())
}
