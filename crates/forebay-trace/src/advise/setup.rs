//! The advised setup of a disk: the options of `forebay run`, and the engine's configuration that
//! they make.
//!
//! **Invariant:** what is not named in the options is `forebay run`'s default in the configuration, too. A test of the command line
//! holds the figures of an advice against those of `forebay trace simulate` with the same options.

use forebay_backends::size::exact;
use forebay_core::config::{
    BackendTraits, Config, DestageOrder, FlashAdmission, GridOffset, Mode, SequentialBypass,
    WriteLogConfig,
};
use forebay_core::flash_pool::segment_size;
use forebay_core::policy::PolicyKind;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Bytes of RAM for cached data.
    pub ram: u64,
    /// Bytes of flash for cached data.
    pub flash: u64,
    /// Bytes of the write log, on flash as well; 0: none.
    pub log: u64,
    /// Bytes of a cache block.
    pub block_size: u64,
    /// Byte offset of the grid.
    pub grid_offset: u64,
    /// What is dropped.
    pub policy: PolicyKind,
    /// What goes to flash.
    pub admission: FlashAdmission,
    /// Which streams are not cached.
    pub bypass: SequentialBypass,
}

impl Setup {
    /// Whether there is a cache.
    pub fn caches(&self) -> bool {
        self.ram + self.flash > 0
    }

    /// Whether there is a write log.
    pub fn logs(&self) -> bool {
        self.log > 0
    }

    /// Use of the cache.
    pub fn mode(&self) -> Mode {
        match (self.caches(), self.log > 0) {
            (true, false) => Mode::WriteThrough,
            (true, true) => Mode::WriteBack,
            (false, true) => Mode::WriteOnly,
            (false, false) => Mode::Monitor,
        }
    }

    /// Options of `forebay run` that carry it out; POOL stands for the flash.
    pub fn options(&self) -> Vec<String> {
        let mut options = vec!["--mode".to_owned(), self.mode().to_string()];
        let mut add = |name: &str, value: String| options.extend([name.to_owned(), value]);
        add("--ram", exact(self.ram).to_string());
        if self.flash + self.log > 0 {
            add("--flash", format!("POOL:{}", exact(self.flash + self.log)));
        }
        if self.log > 0 {
            add("--write-log", exact(self.log).to_string());
        }
        if self.caches() {
            add("--block-size", exact(self.block_size).to_string());
            add("--grid-offset", self.grid_offset.to_string());
            add("--policy", self.policy.to_string());
            if self.bypass == SequentialBypass::Off {
                add("--bypass-sequential", "off".to_owned());
            }
        }
        if self.flash > 0 && self.admission == FlashAdmission::History {
            add("--flash-admission", "history".to_owned());
        }
        options
    }

    /// The engine's configuration, in front of such primary storage.
    pub fn config(&self, backend: BackendTraits) -> Config {
        let segment = segment_size(self.flash + self.log, 1);
        // Strict, but for what strict order does not keep up with.
        let order = DestageOrder::Journaled;
        let log = WriteLogConfig { order, ..WriteLogConfig::of_bytes(self.log, segment) };
        let of_default = Config::for_disk(backend);
        let (block_size, grid_offset, policy) = match self.caches() {
            true => (self.block_size, GridOffset::Fixed(self.grid_offset), self.policy),
            false => (of_default.block_size, of_default.grid_offset, of_default.policy),
        };
        Config {
            mode: self.mode(),
            block_size,
            grid_offset,
            ram_bytes: self.ram,
            flash_bytes: self.flash,
            policy,
            flash_admission: self.admission,
            sequential_bypass: self.bypass,
            write_log: (self.log > 0).then_some(log),
            ..of_default
        }
    }
}
