//! Settings in `PyTorch`'s own syntax (`PYTORCH_CUDA_ALLOC_CONF`), and the sizes that follow from them.
//!
//! The text is a list of `key:value` separated by commas; `roundup_power2_divisions` also takes a list,
//! `[64:8,256:4,>:1]`. White space means nothing. Errors use `PyTorch`'s words where it has some, and say where in
//! the text they are. Text that `PyTorch` reads as something else than it says is refused too: it takes `64MB` for 64
//! and `-1` for 2^64 - 1, and skips whatever stands where a separator should.

use std::fmt;
use std::ops::Range;

/// Every block is a multiple of this many bytes.
pub const MIN_BLOCK_SIZE: u64 = 512;
/// The largest rounded request that the small pool serves.
pub const SMALL_SIZE: u64 = 1 << 20;
/// The size of a segment of the small pool.
pub const SMALL_SEGMENT_SIZE: u64 = 2 << 20;
/// From this size on a request gets a segment of its own size.
pub const MIN_LARGE_SEGMENT: u64 = 10 << 20;
/// A segment of its own is a multiple of this many bytes.
pub const LARGE_ROUNDING: u64 = 2 << 20;
/// The default size of a segment that several large requests share.
pub const DEFAULT_LARGE_SEGMENT_SIZE: u64 = 20 << 20;

const MIB: u64 = 1 << 20;
const INTERVALS: usize = 16;
const MOST_REGISTER_THREADS: u64 = 128;

/// What `PYTORCH_CUDA_ALLOC_CONF` decides about device memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Bytes of a segment that requests between 1 MiB and 10 MiB share (`large_segment_size_mb`).
    pub large_segment_size: u64,
    /// Blocks of at least this many bytes are never split; `u64::MAX` for no such bound (`max_split_size_mb`).
    pub max_split_size: u64,
    /// How many bytes a block that may not be split can be larger than the request (`max_non_split_rounding_mb`).
    pub max_non_split_rounding: u64,
    /// The share of the limit above which unused segments are collected; 0 for never.
    pub garbage_collection_threshold: f64,
    /// Divisions of each power-of-two interval, from below 2 MiB to above 32 GiB; 0 for no such rounding.
    pub roundup_power2_divisions: [u64; INTERVALS],
    /// Whether segments grow by mapping pages into a reserved range of addresses.
    pub expandable_segments: bool,
    /// The share of the device that the process may reserve; 1 for all of it.
    pub per_process_memory_fraction: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            large_segment_size: DEFAULT_LARGE_SEGMENT_SIZE,
            max_split_size: u64::MAX,
            max_non_split_rounding: DEFAULT_LARGE_SEGMENT_SIZE,
            garbage_collection_threshold: 0.0,
            roundup_power2_divisions: [0; INTERVALS],
            expandable_segments: false,
            per_process_memory_fraction: 1.0,
        }
    }
}

/// Text that is not a list of settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError {
    /// What is wrong, a fragment in `PyTorch`'s words where it has some.
    pub message: String,
    /// Where in the text, in bytes.
    pub span: Range<usize>,
    /// The remedy, where there is one to name.
    pub help: Option<String>,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SettingsError {}

/// The keys that `PyTorch` 2.11 knows.
const KEYS: [&str; 15] = [
    "backend",
    "expandable_segments",
    "garbage_collection_threshold",
    "graph_capture_record_stream_reuse",
    "large_segment_size_mb",
    "max_non_split_rounding_mb",
    "max_split_size_mb",
    "per_process_memory_fraction",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads",
    "pinned_use_cuda_host_register",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "roundup_power2_divisions",
];

impl Settings {
    /// Reads settings. An empty text gives the defaults.
    ///
    /// # Errors
    /// [`SettingsError`] for what `PyTorch` refuses, and for a backend that has no caching allocator to model.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        let mut settings = Settings::default();
        let mut tokens = Tokens::new(text);
        while let Some(key) = tokens.next() {
            settings.set(&key, &mut tokens)?;
            if !tokens.at_end() {
                tokens.expect(",")?;
            }
        }
        Ok(settings)
    }

    fn set(&mut self, key: &Token<'_>, tokens: &mut Tokens<'_>) -> Result<(), SettingsError> {
        if !KEYS.contains(&key.text) && key.text != "pinned_use_hip_host_register" {
            let nearest = KEYS
                .into_iter()
                .map(|known| (strsim::damerau_levenshtein(key.text, known), known))
                .min()
                .filter(|(distance, _)| *distance <= 8)
                .map(|(_, known)| format!("did you mean `{known}`?"));
            return Err(key.error(format!("unrecognized key '{}' in CUDA allocator config", key.text)).help(nearest));
        }
        tokens.expect(":")?;
        match key.text {
            "large_segment_size_mb" => {
                let (value, token) = tokens.integer(key.text)?;
                if value <= MIN_LARGE_SEGMENT / MIB {
                    return Err(token.error("CachingAllocator option large_segment_size_mb must be > 10 MB"));
                }
                self.large_segment_size = value.saturating_mul(MIB);
            }
            "max_split_size_mb" => self.max_split_size = self.at_least_a_segment(key.text, tokens)?,
            "max_non_split_rounding_mb" => self.max_non_split_rounding = self.at_least_a_segment(key.text, tokens)?,
            "garbage_collection_threshold" => {
                let (value, token) = tokens.number(key.text)?;
                if !(value > 0.0 && value < 1.0) {
                    return Err(token.error("garbage_collect_threshold is invalid, set it in (0.0, 1.0)"));
                }
                self.garbage_collection_threshold = value;
            }
            "per_process_memory_fraction" => {
                let (value, token) = tokens.number(key.text)?;
                if !(0.0..=1.0).contains(&value) {
                    return Err(token.error("per_process_memory_fraction is invalid, set it in [0.0, 1.0]"));
                }
                self.per_process_memory_fraction = value;
            }
            "roundup_power2_divisions" => self.set_divisions(tokens)?,
            "expandable_segments" => self.expandable_segments = tokens.boolean(key.text)?,
            "backend" => {
                let token = tokens.value(key.text)?;
                match token.text {
                    "native" => {}
                    "cudaMallocAsync" => {
                        return Err(token
                            .error("backend cudaMallocAsync is the driver's own allocator, which is not modelled")
                            .help(Some("leave it out, or set backend:native".to_owned())));
                    }
                    _ => {
                        return Err(
                            token.error("unknown allocator backend, options are native and cudaMallocAsync".to_owned())
                        );
                    }
                }
            }
            // Host memory and locking: checked, and without effect on device memory.
            "pinned_num_register_threads" => {
                let (value, token) = tokens.integer(key.text)?;
                if !value.is_power_of_two() {
                    return Err(token.error(format!("number of register threads has to be power of 2, got {value}")));
                }
                if value > MOST_REGISTER_THREADS {
                    return Err(token.error(format!(
                        "number of register threads should be less than or equal to {MOST_REGISTER_THREADS}, got {value}"
                    )));
                }
            }
            "pinned_reserve_segment_size_mb" => {
                let (value, token) = tokens.integer(key.text)?;
                if value == 0 {
                    return Err(token.error("pinned reserve segment size has to be greater than 0"));
                }
            }
            _ => {
                tokens.boolean(key.text)?;
            }
        }
        Ok(())
    }

    fn at_least_a_segment(&self, key: &str, tokens: &mut Tokens<'_>) -> Result<u64, SettingsError> {
        let (value, token) = tokens.integer(key)?;
        let smallest = self.large_segment_size / MIB;
        if value < smallest {
            return Err(token.error(format!("CachingAllocator option {key} too small, must be >= {smallest}")));
        }
        Ok(value.saturating_mul(MIB))
    }

    fn set_divisions(&mut self, tokens: &mut Tokens<'_>) -> Result<(), SettingsError> {
        const KEY: &str = "roundup_power2_divisions";
        if !tokens.take("[") {
            let (value, token) = tokens.integer(KEY)?;
            if !value.is_power_of_two() {
                return Err(token.error("for roundups, the divisions has to be power of 2"));
            }
            self.roundup_power2_divisions = [value; INTERVALS];
            return Ok(());
        }
        // `>` begins after the last boundary; where none was given, after the first interval (parseRoundUpPower2Divisions).
        let mut after_last = 1;
        let mut first = true;
        while !tokens.take("]") {
            let boundary = tokens.value("roundup_power2_divisions, whose list needs a closing bracket ']',")?;
            tokens.expect(":")?;
            let (value, token) = tokens.integer(KEY)?;
            if value != 0 && !value.is_power_of_two() {
                return Err(token.error("for roundups, the divisions has to be power of 2 or 0 to disable roundup"));
            }
            if boundary.text == ">" {
                self.roundup_power2_divisions[after_last..].fill(value);
            } else {
                let mebibytes = boundary.integer(KEY)?;
                if !mebibytes.is_power_of_two() {
                    return Err(boundary.error("for roundups, the intervals have to be power of 2"));
                }
                let index = (mebibytes.ilog2() as usize).min(INTERVALS - 1);
                if first {
                    self.roundup_power2_divisions[..index].fill(value);
                    first = false;
                }
                self.roundup_power2_divisions[index] = value;
                after_last = index + 1;
            }
            if !tokens.peek_is("]") {
                tokens.expect(",")?;
            }
        }
        Ok(())
    }

    /// Settings that do nothing as they stand. `limited` says whether the process has a memory limit.
    pub fn without_effect(&self, limited: bool) -> Vec<String> {
        let mut found = Vec::new();
        if self.garbage_collection_threshold > 0.0 && !limited {
            found.push(
                "garbage_collection_threshold has no effect without a per-process memory fraction: nothing is ever \
                 collected"
                    .to_owned(),
            );
        }
        if self.garbage_collection_threshold > 0.0 && self.expandable_segments {
            found.push(
                "garbage_collection_threshold has no effect with expandable_segments:True: only ordinary segments are \
                 collected"
                    .to_owned(),
            );
        }
        if self.roundup_power2_divisions.contains(&1) {
            found.push("one division in roundup_power2_divisions has no effect: sizes round to 512 bytes".to_owned());
        }
        if self.max_split_size == u64::MAX && self.max_non_split_rounding != DEFAULT_LARGE_SEGMENT_SIZE {
            found.push("max_non_split_rounding_mb has no effect without max_split_size_mb".to_owned());
        }
        found
    }

    /// The size of the block that serves a request of `size` bytes.
    #[inline]
    pub fn round(&self, size: u64) -> u64 {
        if size < MIN_BLOCK_SIZE {
            return MIN_BLOCK_SIZE;
        }
        let log = size.ilog2();
        let divisions = self.roundup_power2_divisions[(log.saturating_sub(20) as usize).min(INTERVALS - 1)];
        if divisions <= 1 || size <= MIN_BLOCK_SIZE * divisions {
            return size.next_multiple_of(MIN_BLOCK_SIZE);
        }
        if size.is_power_of_two() {
            return size;
        }
        let floor = 1_u64 << log;
        match floor / divisions {
            0 => floor << 1,
            step => size.next_multiple_of(step),
        }
    }

    /// The size of a new segment for a block of `size` bytes.
    #[inline]
    pub fn segment_size(&self, size: u64) -> u64 {
        if size <= SMALL_SIZE {
            SMALL_SEGMENT_SIZE
        } else if size < MIN_LARGE_SEGMENT {
            self.large_segment_size
        } else {
            size.next_multiple_of(LARGE_ROUNDING)
        }
    }

    /// The page of an expandable segment.
    pub fn page_size(&self, small: bool) -> u64 {
        if small { SMALL_SEGMENT_SIZE } else { self.large_segment_size }
    }
}

#[derive(Debug, Clone)]
struct Token<'a> {
    text: &'a str,
    span: Range<usize>,
}

impl Token<'_> {
    fn error(&self, message: impl Into<String>) -> SettingsError {
        SettingsError { message: message.into(), span: self.span.clone(), help: None }
    }

    fn integer(&self, key: &str) -> Result<u64, SettingsError> {
        self.text.parse().map_err(|_| self.error(format!("expected a whole number for {key} but got '{}'", self.text)))
    }
}

impl SettingsError {
    fn help(self, help: Option<String>) -> Self {
        Self { help, ..self }
    }
}

struct Tokens<'a> {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token<'a>>>,
    end: usize,
}

impl<'a> Tokens<'a> {
    fn new(text: &'a str) -> Self {
        // PyTorch drops white space even inside a word; no word that means anything has some.
        let mut tokens = Vec::new();
        let mut start = None;
        for (at, character) in text.char_indices().chain([(text.len(), ',')]) {
            let separator = matches!(character, ',' | ':' | '[' | ']');
            if separator || character.is_whitespace() {
                if let Some(start) = start.take() {
                    tokens.push(Token { text: &text[start..at], span: start..at });
                }
                if separator && at < text.len() {
                    tokens.push(Token { text: &text[at..=at], span: at..at + 1 });
                }
            } else if start.is_none() {
                start = Some(at);
            }
        }
        Self { tokens: tokens.into_iter().peekable(), end: text.len() }
    }

    fn next(&mut self) -> Option<Token<'a>> {
        self.tokens.next()
    }

    fn at_end(&mut self) -> bool {
        self.tokens.peek().is_none()
    }

    fn peek_is(&mut self, text: &str) -> bool {
        self.tokens.peek().is_some_and(|token| token.text == text)
    }

    fn take(&mut self, text: &str) -> bool {
        self.tokens.next_if(|token| token.text == text).is_some()
    }

    fn expect(&mut self, text: &str) -> Result<(), SettingsError> {
        match self.tokens.next() {
            Some(token) if token.text == text => Ok(()),
            Some(token) => Err(token.error(format!("expected '{text}' but got '{}'", token.text))),
            None => Err(self.ended(&format!("'{text}'"))),
        }
    }

    fn ended(&self, expected: &str) -> SettingsError {
        SettingsError {
            message: format!("expected {expected} but the text ends"),
            span: self.end..self.end,
            help: None,
        }
    }

    fn value(&mut self, key: &str) -> Result<Token<'a>, SettingsError> {
        match self.tokens.next() {
            Some(token) if matches!(token.text, "," | ":" | "[" | "]") => {
                Err(token.error(format!("expected a value for {key} but got '{}'", token.text)))
            }
            Some(token) => Ok(token),
            None => Err(self.ended(&format!("a value for {key}"))),
        }
    }

    fn integer(&mut self, key: &str) -> Result<(u64, Token<'a>), SettingsError> {
        let token = self.value(key)?;
        Ok((token.integer(key)?, token))
    }

    fn number(&mut self, key: &str) -> Result<(f64, Token<'a>), SettingsError> {
        let token = self.value(key)?;
        match token.text.parse() {
            Ok(value) => Ok((value, token)),
            Err(_) => Err(token.error(format!("expected a number for {key} but got '{}'", token.text))),
        }
    }

    fn boolean(&mut self, key: &str) -> Result<bool, SettingsError> {
        let token = self.value(key)?;
        match token.text {
            "True" => Ok(true),
            "False" => Ok(false),
            other => Err(token.error(format!("expected 'True' or 'False' for {key} but got '{other}'"))),
        }
    }
}
