//! The exercise's model: a pre-norm transformer encoder that classifies from its first token.
//!
//! Shapes: B samples, S tokens, H hidden size, N heads, D = H / N. Each operation stands in the order, and each intermediate
//! lives as long, as in the eager `PyTorch` modules that it is modelled on (`nn.MultiheadAttention` with
//! `batch_first=True`, `need_weights=False`; `nn.Linear`; `nn.LayerNorm`): samples of memory depend on both.

use memlab::protocol::ModelConfig;
use tch::{Kind, Tensor};

use crate::memory::Frame;
use crate::native::{self, Device};
use crate::stop::Stop;

const LAYER_NORM_EPSILON: f64 = 1e-5;

struct LayerNorm {
    weight: Tensor,
    bias: Tensor,
}

struct Block {
    norm1: LayerNorm,
    in_projection: Tensor,
    out_projection: Tensor,
    norm2: LayerNorm,
    expand: Tensor,
    contract: Tensor,
}

/// The model on its device.
pub(crate) struct Model {
    config: ModelConfig,
    embedding: Tensor,
    position: Tensor,
    blocks: Vec<Block>,
    norm: LayerNorm,
    classifier: Tensor,
}

/// Creates parameters on the host in `PyTorch`'s order, so that a seed gives the same weights everywhere.
struct Initializer {
    /// Without values nothing is drawn, and nobody looks at what the memory holds.
    values: bool,
}

impl Initializer {
    fn empty(size: &[u64]) -> Result<Tensor, Stop> {
        let mut sizes = Vec::with_capacity(size.len());
        for size in size {
            sizes.push(i64::try_from(*size).map_err(|_| Stop::Error(format!("a dimension of {size} is too large")))?);
        }
        Ok(Tensor::f_empty(sizes, (Kind::Float, tch::Device::Cpu))?)
    }

    fn normal(&self, size: &[u64], deviation: f64) -> Result<Tensor, Stop> {
        let mut tensor = Self::empty(size)?;
        Ok(if self.values { tensor.f_normal_(0.0, deviation)? } else { tensor })
    }

    fn uniform(&self, size: &[u64], bound: f64) -> Result<Tensor, Stop> {
        let mut tensor = Self::empty(size)?;
        Ok(if self.values { tensor.f_uniform_(-bound, bound)? } else { tensor })
    }

    /// `nn.Linear`'s default: `kaiming_uniform_` with `a = sqrt(5)`.
    fn linear(&self, outputs: u64, inputs: u64) -> Result<Tensor, Stop> {
        let gain = (2.0_f64 / (1.0 + 5.0_f64.sqrt().powi(2))).sqrt();
        self.uniform(&[outputs, inputs], 3.0_f64.sqrt() * (gain / (inputs as f64).sqrt()))
    }

    fn layer_norm(&self, size: u64) -> Result<LayerNorm, Stop> {
        let (mut weight, mut bias) = (Self::empty(&[size])?, Self::empty(&[size])?);
        if self.values {
            weight = weight.f_fill_(1.0)?;
            bias = bias.f_fill_(0.0)?;
        }
        Ok(LayerNorm { weight, bias })
    }

    fn block(&self, config: &ModelConfig) -> Result<Block, Stop> {
        let h = config.hidden_size;
        let norm1 = self.layer_norm(h)?;
        // nn.MultiheadAttention draws its output projection before its packed input projection (xavier_uniform_).
        let out_projection = self.linear(h, h)?;
        let in_projection = self.uniform(&[3 * h, h], 3.0_f64.sqrt() * (2.0 / (4 * h) as f64).sqrt())?;
        let norm2 = self.layer_norm(h)?;
        let expand = self.linear(config.feedforward_size, h)?;
        let contract = self.linear(h, config.feedforward_size)?;
        Ok(Block { norm1, in_projection, out_projection, norm2, expand, contract })
    }
}

impl Model {
    /// Creates the parameters on the host and moves them, children before a module's own parameters, as `Module.to` does.
    ///
    /// # Errors
    /// Out of memory, on the host or the device.
    pub(crate) fn new(config: &ModelConfig, seed: u64, values: bool, device: Device) -> Result<Self, Stop> {
        tch::manual_seed(seed.cast_signed());
        let initializer = Initializer { values };
        let h = config.hidden_size;
        let embedding = initializer.normal(&[config.vocabulary_size, h], 1.0)?;
        let position = initializer.normal(&[config.sequence_length, h], 0.02)?;
        let blocks = (0..config.layers).map(|_| initializer.block(config)).collect::<Result<Vec<_>, _>>()?;
        let norm = initializer.layer_norm(h)?;
        let classifier = initializer.linear(config.classes, h)?;

        let mut model = Self { config: config.clone(), embedding, position, blocks, norm, classifier };
        for (name, parameter) in model.in_moving_order() {
            let _frame = Frame::enter(&name);
            *parameter = native::to_device(parameter, device)?.f_set_requires_grad(true)?;
        }
        Ok(model)
    }

    fn in_moving_order(&mut self) -> Vec<(String, &mut Tensor)> {
        let mut order = vec![("token_embedding".to_owned(), &mut self.embedding)];
        for (index, block) in self.blocks.iter_mut().enumerate() {
            let mut push = |name: &str, tensor| order.push((format!("blocks.{index}.{name}"), tensor));
            push("norm1", &mut block.norm1.weight);
            push("norm1", &mut block.norm1.bias);
            push("attention.out_proj", &mut block.out_projection);
            push("attention", &mut block.in_projection);
            push("norm2", &mut block.norm2.weight);
            push("norm2", &mut block.norm2.bias);
            push("feedforward.0", &mut block.expand);
            push("feedforward.2", &mut block.contract);
        }
        order.push(("norm".to_owned(), &mut self.norm.weight));
        order.push(("norm".to_owned(), &mut self.norm.bias));
        order.push(("classifier".to_owned(), &mut self.classifier));
        order.push(("position".to_owned(), &mut self.position));
        order
    }

    /// The parameters in the order of `Module.parameters`: a module's own before its children's.
    pub(crate) fn parameters(&self) -> Vec<Tensor> {
        let mut parameters = vec![&self.position, &self.embedding];
        for block in &self.blocks {
            parameters.extend([
                &block.norm1.weight,
                &block.norm1.bias,
                &block.in_projection,
                &block.out_projection,
                &block.norm2.weight,
                &block.norm2.bias,
                &block.expand,
                &block.contract,
            ]);
        }
        parameters.extend([&self.norm.weight, &self.norm.bias, &self.classifier]);
        parameters.into_iter().map(Tensor::shallow_clone).collect()
    }

    /// Logits (B, classes) of tokens (B, S).
    ///
    /// # Errors
    /// Out of memory.
    pub(crate) fn forward(&self, tokens: &Tensor) -> Result<Tensor, Stop> {
        let mut x = {
            let _frame = Frame::enter("token_embedding");
            let embedded = Tensor::f_embedding(&self.embedding, tokens, -1, false, false)?;
            embedded.f_add(&self.position.f_unsqueeze(0)?)?
        };
        for (index, block) in self.blocks.iter().enumerate() {
            let _frame = Frame::enter(&format!("blocks.{index}"));
            x = self.block(block, &x)?;
        }
        let first = x.f_select(1, 0)?;
        let normed = {
            let _frame = Frame::enter("norm");
            self.layer_norm(&self.norm, &first)?
        };
        let _frame = Frame::enter("classifier");
        Ok(normed.f_linear(&self.classifier, None::<Tensor>)?)
    }

    fn layer_norm(&self, norm: &LayerNorm, x: &Tensor) -> Result<Tensor, Stop> {
        let size = dimension(self.config.hidden_size)?;
        Ok(x.f_layer_norm([size], Some(&norm.weight), Some(&norm.bias), LAYER_NORM_EPSILON, true)?)
    }

    /// (B, S, H) to (B, S, H).
    fn block(&self, block: &Block, x: &Tensor) -> Result<Tensor, Stop> {
        let normed = {
            let _frame = Frame::enter("norm1");
            self.layer_norm(&block.norm1, x)?
        };
        let attended = {
            let _frame = Frame::enter("attention");
            self.attention(block, &normed)?
        };
        let x = x.f_add(&attended)?;
        let x = {
            let _frame = Frame::enter("feedforward");
            let fed = self.feed_forward(block, &x)?;
            x.f_add(&fed)?
        };
        // A Python function's locals live until it returns, in the order of their first assignment.
        drop(normed);
        drop(attended);
        Ok(x)
    }

    fn feed_forward(&self, block: &Block, x: &Tensor) -> Result<Tensor, Stop> {
        let normed = self.layer_norm(&block.norm2, x)?;
        let expanded = normed.f_linear(&block.expand, None::<Tensor>)?;
        let activated = expanded.f_gelu("tanh")?;
        drop(expanded);
        Ok(activated.f_linear(&block.contract, None::<Tensor>)?)
    }

    /// `nn.MultiheadAttention` on (B, S, H), which it transposes to (S, B, H) for itself.
    #[expect(clippy::many_single_char_names, reason = "the dimensions' names of the module's first lines")]
    fn attention(&self, block: &Block, x: &Tensor) -> Result<Tensor, Stop> {
        let (b, s) = (x.size()[0], x.size()[1]);
        let (h, n) = (dimension(self.config.hidden_size)?, dimension(self.config.attention_heads)?);
        let d = h / n;
        let x = x.f_transpose(1, 0)?;
        // (S, B, 3H) to three contiguous (S, B, H); the projection itself is free again once it is copied.
        let packed = {
            let projected = x.f_linear(&block.in_projection, None::<Tensor>)?;
            projected.f_view([s, b, 3, h])?.f_unsqueeze(0)?.f_transpose(0, -2)?.f_squeeze_dim(-2)?.f_contiguous()?
        };
        // The three are taken side by side, step by step: backward follows the order in which they were made.
        let parts = [packed.f_select(0, 0)?, packed.f_select(0, 1)?, packed.f_select(0, 2)?];
        let by_head = |part: &Tensor| Ok::<_, Stop>(part.f_view([s, b * n, d])?.f_transpose(0, 1)?);
        let parts = [by_head(&parts[0])?, by_head(&parts[1])?, by_head(&parts[2])?];
        let [query, key, value] =
            [parts[0].f_view([b, n, s, d])?, parts[1].f_view([b, n, s, d])?, parts[2].f_view([b, n, s, d])?];
        let attended = native::attention(&query, &key, &value)?;
        let attended = attended.f_permute([2, 0, 1, 3])?.f_contiguous()?.f_view([b * s, h])?;
        let projected = attended.f_linear(&block.out_projection, None::<Tensor>)?;
        Ok(projected.f_view([s, b, h])?.f_transpose(1, 0)?)
    }
}

fn dimension(size: u64) -> Result<i64, Stop> {
    i64::try_from(size).map_err(|_| Stop::Error(format!("a dimension of {size} is too large")))
}
