//! The optimizers of the exercise, as `torch.optim` runs them on CUDA by default: over lists of tensors (`foreach=True`).
//!
//! Source: `torch/optim/sgd.py` (`_multi_tensor_sgd`) and `torch/optim/adam.py` (`_multi_tensor_adam`) of `PyTorch` 2.11.

use tch::Tensor;

use crate::native::{self, foreach};
use crate::stop::Stop;

/// Updates parameters in place from their gradients.
pub(crate) trait Optimizer {
    /// One step over the parameters that have a gradient.
    ///
    /// # Errors
    /// What libtorch refuses; out of memory where state or temporaries do not fit.
    fn step(&mut self, parameters: &[Tensor]) -> Result<(), Stop>;
}

/// Parameters with their gradients, in order; a parameter without a gradient is left out.
fn with_gradients(parameters: &[Tensor]) -> Result<(Vec<&Tensor>, Vec<Tensor>), Stop> {
    let mut pairs = (Vec::new(), Vec::new());
    for parameter in parameters {
        if let Some(gradient) = native::gradient(parameter)? {
            pairs.0.push(parameter);
            pairs.1.push(gradient);
        }
    }
    Ok(pairs)
}

/// Stochastic gradient descent without momentum.
#[derive(Debug)]
pub(crate) struct Sgd {
    /// Step size.
    pub(crate) learning_rate: f64,
}

impl Optimizer for Sgd {
    fn step(&mut self, parameters: &[Tensor]) -> Result<(), Stop> {
        tch::no_grad(|| {
            let (parameters, gradients) = with_gradients(parameters)?;
            foreach::add_list(&parameters, &gradients, -self.learning_rate)
        })
    }
}

/// Adam with decoupled weight decay (Loshchilov and Hutter, 2019), with the defaults of `torch.optim.AdamW`.
#[derive(Debug)]
pub(crate) struct AdamW {
    learning_rate: f64,
    steps: i32,
    averages: Vec<Tensor>,
    squares: Vec<Tensor>,
}

const BETA1: f64 = 0.9;
const BETA2: f64 = 0.999;
const EPSILON: f64 = 1e-8;
const WEIGHT_DECAY: f64 = 1e-2;

impl AdamW {
    /// An optimizer without state: both averages are allocated by the first step.
    pub(crate) fn new(learning_rate: f64) -> Self {
        Self { learning_rate, steps: 0, averages: Vec::new(), squares: Vec::new() }
    }
}

impl Optimizer for AdamW {
    fn step(&mut self, parameters: &[Tensor]) -> Result<(), Stop> {
        tch::no_grad(|| {
            let (parameters, gradients) = with_gradients(parameters)?;
            if self.averages.is_empty() {
                for parameter in &parameters {
                    self.averages.push(parameter.f_zeros_like()?);
                    self.squares.push(parameter.f_zeros_like()?);
                }
            }
            self.steps += 1;
            foreach::mul_scalar(&parameters, 1.0 - self.learning_rate * WEIGHT_DECAY)?;
            foreach::lerp(&self.averages, &gradients, 1.0 - BETA1)?;
            foreach::mul_scalar(&self.squares, BETA2)?;
            foreach::addcmul(&self.squares, &gradients, &gradients, 1.0 - BETA2)?;
            drop(gradients);
            let correction1 = 1.0 - BETA1.powi(self.steps);
            let correction2 = (1.0 - BETA2.powi(self.steps)).sqrt();
            let mut roots = foreach::sqrt(&self.squares)?;
            foreach::div_scalars(&roots, &vec![correction2; roots.len()])?;
            foreach::add_scalar(&roots, EPSILON)?;
            let scale = vec![-self.learning_rate / correction1; roots.len()];
            foreach::addcdiv_scalars(&parameters, &self.averages, &roots, &scale)?;
            // The interpreter frees a list from its end.
            while roots.pop().is_some() {}
            Ok(())
        })
    }
}
