//! The body of an answer, read by a parser while it comes.

use std::io::{self, BufReader, Read};

use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_ENCODING;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::spawn_blocking;

/// Pieces between the connection and the parser.
const PIECES: usize = 16;
const BUFFER: usize = 64 << 10;

/// What a parser made of a body.
pub(crate) struct Body<T> {
    pub(crate) parsed: T,
    /// Decompressed.
    pub(crate) bytes: u64,
    /// Whether the parser saw an end only because there was too much.
    pub(crate) too_large: bool,
}

/// Why a body was not read.
pub(crate) enum BodyError {
    /// The connection broke.
    Broken(hyper::Error),
    /// A compression that was not asked for.
    Encoding,
    /// The parser's thread did not come to its end.
    Parser,
}

/// Has the body read, on a thread of its own since parsing is not waiting. A parser that stops before the end ends the reading.
pub(crate) async fn read_body<T: Send + 'static>(
    response: Response<Incoming>,
    most_bytes: u64,
    parse: impl FnOnce(&mut dyn Read) -> T + Send + 'static,
) -> Result<Body<T>, BodyError> {
    let gzip = match response.headers().get(CONTENT_ENCODING).map(|encoding| encoding.as_bytes()) {
        None | Some(b"identity") => false,
        Some(b"gzip" | b"x-gzip") => true,
        Some(_) => return Err(BodyError::Encoding),
    };
    let (pieces, arriving) = channel(PIECES);
    let parser = spawn_blocking(move || {
        let arriving = Arriving { from: arriving, piece: Bytes::new() };
        let plain: Box<dyn Read> =
            if gzip { Box::new(MultiGzDecoder::new(arriving)) } else { Box::new(arriving) };
        let mut capped = Capped { from: plain, left: most_bytes, too_large: false };
        let parsed = parse(&mut BufReader::with_capacity(BUFFER, &mut capped));
        Body { parsed, bytes: most_bytes - capped.left, too_large: capped.too_large }
    });
    let (mut body, mut broken) = (response.into_body(), None);
    while let Some(frame) = body.frame().await {
        match frame.map(hyper::body::Frame::into_data) {
            Ok(Ok(piece)) => {
                if pieces.send(piece).await.is_err() {
                    break;
                }
            }
            // Trailers.
            Ok(Err(_)) => {}
            Err(error) => {
                broken = Some(error);
                break;
            }
        }
    }
    drop(pieces);
    let parsed = parser.await.map_err(|_| BodyError::Parser)?;
    match broken {
        Some(error) => Err(BodyError::Broken(error)),
        None => Ok(parsed),
    }
}

/// The pieces as they come.
struct Arriving {
    from: Receiver<Bytes>,
    piece: Bytes,
}

impl Read for Arriving {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.from.blocking_recv() {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let part = self.piece.split_to(into.len().min(self.piece.len()));
        into.iter_mut().zip(&part).for_each(|(to, from)| *to = *from);
        Ok(part.len())
    }
}

/// Ends with an error after so many bytes: a small body may be very large when it is decompressed.
struct Capped<R> {
    from: R,
    left: u64,
    too_large: bool,
}

impl<R: Read> Read for Capped<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(into)?;
        match self.left.checked_sub(read as u64) {
            Some(left) => self.left = left,
            None => {
                self.too_large = true;
                return Err(io::Error::other("too large"));
            }
        }
        Ok(read)
    }
}

/// The beginning of a body that is not large: what could be read of it.
pub(crate) async fn read_text(response: Response<Incoming>, most_bytes: u64) -> Vec<u8> {
    let text = |from: &mut dyn Read| {
        let mut text = Vec::new();
        // Of a text that breaks off, its beginning may say enough.
        let _ = from.read_to_end(&mut text);
        text
    };
    read_body(response, most_bytes, text).await.map(|body| body.parsed).unwrap_or_default()
}
