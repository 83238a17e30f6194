//! Operations on lists of tensors: `torch._foreach_*`, which tch does not have.

use std::borrow::Borrow;

use tch::Tensor;
use torch_sys::C_tensor;

use super::{Status, check};
use crate::stop::Stop;

type List = *const *const C_tensor;

// SAFETY: the declarations are those of shim.h.
unsafe extern "C" {
    fn memlab_foreach_add_list(own: List, other: List, count: usize, alpha: f64) -> Status;
    fn memlab_foreach_add_scalar(own: List, count: usize, value: f64) -> Status;
    fn memlab_foreach_mul_scalar(own: List, count: usize, value: f64) -> Status;
    fn memlab_foreach_lerp(own: List, end: List, count: usize, weight: f64) -> Status;
    fn memlab_foreach_addcmul(own: List, left: List, right: List, count: usize, value: f64) -> Status;
    fn memlab_foreach_sqrt(own: List, count: usize, results: *mut *mut C_tensor) -> Status;
    fn memlab_foreach_div_scalars(own: List, count: usize, values: *const f64) -> Status;
    fn memlab_foreach_addcdiv_scalars(own: List, left: List, right: List, count: usize, values: *const f64) -> Status;
}

fn pointers<T: Borrow<Tensor>>(tensors: &[T]) -> Vec<*const C_tensor> {
    tensors.iter().map(|tensor| tensor.borrow().as_ptr()).collect()
}

/// Lists of one operation are equally long, because each pairs parameters with what belongs to them.
fn same_length(lengths: &[usize]) -> Result<usize, Stop> {
    match lengths {
        [first, rest @ ..] if rest.iter().all(|length| length == first) => Ok(*first),
        _ => Err(Stop::Error(format!("tensor lists of different lengths: {lengths:?}"))),
    }
}

/// `own += alpha * other`.
///
/// # Errors
/// What libtorch refuses.
pub(crate) fn add_list<T: Borrow<Tensor>>(own: &[T], other: &[Tensor], alpha: f64) -> Result<(), Stop> {
    let count = same_length(&[own.len(), other.len()])?;
    // SAFETY: both lists are valid for `count` tensors.
    check(unsafe { memlab_foreach_add_list(pointers(own).as_ptr(), pointers(other).as_ptr(), count, alpha) })
}

/// `own += value`.
///
/// # Errors
/// What libtorch refuses.
pub(crate) fn add_scalar(own: &[Tensor], value: f64) -> Result<(), Stop> {
    // SAFETY: the list is valid for its length.
    check(unsafe { memlab_foreach_add_scalar(pointers(own).as_ptr(), own.len(), value) })
}

/// `own *= value`.
///
/// # Errors
/// What libtorch refuses.
pub(crate) fn mul_scalar<T: Borrow<Tensor>>(own: &[T], value: f64) -> Result<(), Stop> {
    // SAFETY: the list is valid for its length.
    check(unsafe { memlab_foreach_mul_scalar(pointers(own).as_ptr(), own.len(), value) })
}

/// `own += weight * (end - own)`.
///
/// # Errors
/// What libtorch refuses.
pub(crate) fn lerp(own: &[Tensor], end: &[Tensor], weight: f64) -> Result<(), Stop> {
    let count = same_length(&[own.len(), end.len()])?;
    // SAFETY: both lists are valid for `count` tensors.
    check(unsafe { memlab_foreach_lerp(pointers(own).as_ptr(), pointers(end).as_ptr(), count, weight) })
}

/// `own += value * left * right`.
///
/// # Errors
/// What libtorch refuses.
pub(crate) fn addcmul(own: &[Tensor], left: &[Tensor], right: &[Tensor], value: f64) -> Result<(), Stop> {
    let count = same_length(&[own.len(), left.len(), right.len()])?;
    let (own, left, right) = (pointers(own), pointers(left), pointers(right));
    // SAFETY: the lists are valid for `count` tensors.
    check(unsafe { memlab_foreach_addcmul(own.as_ptr(), left.as_ptr(), right.as_ptr(), count, value) })
}

/// Square roots, as new tensors.
///
/// # Errors
/// Out of memory.
pub(crate) fn sqrt(own: &[Tensor]) -> Result<Vec<Tensor>, Stop> {
    let mut results = vec![std::ptr::null_mut(); own.len()];
    // SAFETY: both lists are valid for their length.
    check(unsafe { memlab_foreach_sqrt(pointers(own).as_ptr(), own.len(), results.as_mut_ptr()) })?;
    // SAFETY: on success every result is a tensor that the C++ side does not keep.
    Ok(results.into_iter().map(|result| unsafe { Tensor::from_ptr(result) }).collect())
}

/// `own /= values`, one for each tensor.
///
/// # Errors
/// What libtorch refuses.
pub(crate) fn div_scalars(own: &[Tensor], values: &[f64]) -> Result<(), Stop> {
    let count = same_length(&[own.len(), values.len()])?;
    // SAFETY: list and values are valid for `count`.
    check(unsafe { memlab_foreach_div_scalars(pointers(own).as_ptr(), count, values.as_ptr()) })
}

/// `own += values * left / right`, one value for each tensor.
///
/// # Errors
/// What libtorch refuses.
pub(crate) fn addcdiv_scalars<T: Borrow<Tensor>>(
    own: &[T],
    left: &[Tensor],
    right: &[Tensor],
    values: &[f64],
) -> Result<(), Stop> {
    let count = same_length(&[own.len(), left.len(), right.len(), values.len()])?;
    let (own, left, right) = (pointers(own), pointers(left), pointers(right));
    // SAFETY: the lists and the values are valid for `count`.
    check(unsafe {
        memlab_foreach_addcdiv_scalars(own.as_ptr(), left.as_ptr(), right.as_ptr(), count, values.as_ptr())
    })
}
