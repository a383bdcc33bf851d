//! The bytes of a trace: plain, or compressed with zstd, gzip or xz, found by content.

use std::fmt;
use std::io::{self, BufRead, BufReader, Cursor, Read};

use liblzma::stream::{CONCATENATED, Stream};

/// How much is looked at to find the format.
const SAMPLE_LEN: u64 = 64 << 10;
/// First bytes of a compressed file.
const ZSTD_MAGIC: &[u8] = &[0x28, 0xB5, 0x2F, 0xFD];
const GZIP_MAGIC: &[u8] = &[0x1F, 0x8B];
const XZ_MAGIC: &[u8] = &[0xFD, b'7', b'z', b'X', b'Z', 0];
/// Memory that a decoder of xz may take: it is the file that says how much it needs, 65 MiB after `xz -9`.
const XZ_MEMORY: u64 = 256 << 20;

/// Decompressed bytes, with a look at the first of them.
pub(super) struct Source {
    sample: Cursor<Vec<u8>>,
    /// The error that ended the sample. A decoder tells it once, and then may call it the end.
    trouble: Option<io::Error>,
    rest: Box<dyn BufRead + Send>,
}

impl Source {
    pub(super) fn new(mut input: impl Read + Send + 'static) -> io::Result<Source> {
        let mut magic = Vec::new();
        (&mut input).take(XZ_MAGIC.len() as u64).read_to_end(&mut magic)?;
        let is = |begin: &[u8]| magic.starts_with(begin);
        let (zstd, gzip, xz) = (is(ZSTD_MAGIC), is(GZIP_MAGIC), is(XZ_MAGIC));
        let input = Cursor::new(magic).chain(input);
        let mut rest: Box<dyn BufRead + Send> = if zstd {
            Box::new(BufReader::new(zstd::Decoder::new(input)?))
        } else if gzip {
            Box::new(BufReader::new(flate2::read::MultiGzDecoder::new(input)))
        } else if xz {
            let stream = Stream::new_stream_decoder(XZ_MEMORY, CONCATENATED)?;
            Box::new(BufReader::new(liblzma::read::XzDecoder::new_stream(input, stream)))
        } else {
            Box::new(BufReader::new(input))
        };
        let mut sample = Vec::new();
        let read = (&mut rest).take(SAMPLE_LEN).read_to_end(&mut sample);
        // What is wrong with the input is told when reading gets there, unless it is wrong from the beginning.
        let trouble = match read {
            Err(error) if sample.is_empty() => return Err(error),
            read => read.err(),
        };
        Ok(Source { sample: Cursor::new(sample), trouble, rest })
    }

    /// The first bytes, whatever was read since.
    pub(super) fn sample(&self) -> &[u8] {
        self.sample.get_ref()
    }

    fn in_sample(&self) -> bool {
        self.sample.position() < self.sample.get_ref().len() as u64
    }

    /// What comes behind the sample.
    fn behind(&mut self) -> io::Result<&mut dyn BufRead> {
        self.trouble.take().map_or(Ok(&mut *self.rest), Err)
    }
}

impl Read for Source {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.in_sample() { self.sample.read(buf) } else { self.behind()?.read(buf) }
    }
}

impl BufRead for Source {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.in_sample() { self.sample.fill_buf() } else { self.behind()?.fill_buf() }
    }

    fn consume(&mut self, amount: usize) {
        if self.in_sample() { self.sample.consume(amount) } else { self.rest.consume(amount) }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("sampled", &self.sample().len()).finish_non_exhaustive()
    }
}
