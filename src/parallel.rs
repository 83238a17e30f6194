//! Work on all cores.

use crate::diag::Diagnostic;

/// Does work in which rayon uses every core. Its threads start and end with it: most commands need none.
///
/// # Errors
/// The system gives no threads.
pub fn on_all_cores<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Diagnostic> {
    let pool = rayon::ThreadPoolBuilder::new().build();
    pool.map(|pool| pool.install(work)).map_err(|error| Diagnostic::error(format!("cannot start threads: {error}")))
}
