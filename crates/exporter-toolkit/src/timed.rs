//! The time limits of one connection: to send a request, to read an answer, and between two requests.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::admission::{Place, Stage};

/// The three limits of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// From the first byte of a request (or from the start of the connection) to the last of its head.
    pub(crate) header: Duration,
    /// From the first moment the client does not take more of an answer until it has taken all of it.
    pub(crate) write: Duration,
    /// Between two requests.
    pub(crate) idle: Duration,
}

/// Counts the requests of a connection. hyper's own timer starts whenever a head may come. It does not distinguish a slow
/// head from a connection that is kept for the next scrape, so that it cannot hold both limits.
///
/// The connection's place learns from it what the connection does.
#[derive(Default)]
pub(crate) struct Requests {
    begun: AtomicU64,
    ended: AtomicU64,
    /// Bytes of the answer's body.
    bytes: AtomicU64,
    /// Whether the answer is an exposition.
    exposition: AtomicBool,
    place: Option<Arc<Place>>,
}

impl Requests {
    /// Of the connection that has this place.
    pub(crate) fn new(place: Option<Arc<Place>>) -> Self {
        Requests { place, ..Requests::default() }
    }

    /// A request is being answered until the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Answering {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        self.exposition.store(false, Ordering::Relaxed);
        self.place.iter().for_each(|place| place.set(Stage::Answering));
        Answering(Arc::clone(self))
    }

    /// The client does not take what is left of the answer, or the kernel has taken the last of it.
    fn left(&self, written: u64, stage: Stage) {
        let Some(place) = &self.place else { return };
        place.set(stage);
        let left = if stage == Stage::Unread {
            self.bytes.load(Ordering::Relaxed).saturating_sub(written)
        } else {
            0
        };
        place.set_unread(left);
        if stage == Stage::Idle && self.exposition.load(Ordering::Relaxed) {
            place.scraped();
        }
    }
}

/// One request that is being answered.
pub(crate) struct Answering(Arc<Requests>);

impl Answering {
    /// There is an answer, and its body has so many bytes.
    pub(crate) fn answered(self, bytes: u64, exposition: bool) {
        self.0.bytes.store(bytes, Ordering::Relaxed);
        self.0.exposition.store(exposition, Ordering::Relaxed);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// A stream that fails with `TimedOut` when its client exceeds a limit.
pub(crate) struct Timed<S> {
    stream: S,
    limits: Limits,
    requests: Arc<Requests>,
    ended_seen: u64,
    /// The request whose answer is being written, how much of it is, and whether all of it is out.
    begun_seen: u64,
    written: u64,
    finished: bool,
    /// No byte of the next request has come yet, and the last answer is out.
    idle: bool,
    reading: Pin<Box<Sleep>>,
    writing: Option<Pin<Box<Sleep>>>,
}

impl<S> Timed<S> {
    pub(crate) fn new(stream: S, limits: Limits, requests: Arc<Requests>) -> Self {
        let reading = Box::pin(sleep(limits.header));
        Timed {
            stream,
            limits,
            requests,
            ended_seen: 0,
            begun_seen: 0,
            written: 0,
            finished: true,
            idle: false,
            reading,
            writing: None,
        }
    }

    /// The write limit spans a whole answer. It starts when the socket is full and ends with the flush after the last
    /// byte, so that a client which takes one byte now and then gains no time.
    fn limit_write<T>(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_pending() {
            if self.writing.is_none() {
                self.requests.left(self.written, Stage::Unread);
            }
            let limit = self.limits.write;
            ready!(self.writing.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(cx));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        done
    }

    fn wrote(&mut self, written: &Poll<io::Result<usize>>) {
        let begun = self.requests.begun.load(Ordering::Relaxed);
        if self.begun_seen != begun {
            (self.begun_seen, self.written, self.finished) = (begun, 0, false);
        }
        if let Poll::Ready(Ok(bytes)) = written {
            self.written += u64::try_from(*bytes).unwrap_or(0);
            if self.writing.is_some() {
                self.requests.left(self.written, Stage::Unread);
            }
        }
    }

    /// All that was written is with the kernel; notes when that is a whole answer.
    fn flushed(&mut self) {
        let Requests { begun, ended, bytes, .. } = &*self.requests;
        let begun = begun.load(Ordering::Relaxed);
        let whole = self.begun_seen == begun
            && ended.load(Ordering::Relaxed) == begun
            && self.written > bytes.load(Ordering::Relaxed);
        if whole && !std::mem::replace(&mut self.finished, true) {
            self.requests.left(self.written, Stage::Idle);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let ended = this.requests.ended.load(Ordering::Relaxed);
        if ended != this.ended_seen {
            this.ended_seen = ended;
            this.idle = true;
            this.reading.as_mut().reset(Instant::now() + this.limits.idle);
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        if read.is_pending() {
            if this.requests.begun.load(Ordering::Relaxed) == ended {
                ready!(this.reading.as_mut().poll(cx));
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        } else if this.idle && buf.filled().len() > before {
            this.idle = false;
            this.reading.as_mut().reset(Instant::now() + this.limits.header);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(&written);
        self.limit_write(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(&written);
        self.limit_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_ready() {
            self.writing = None;
            self.flushed();
        }
        self.limit_write(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.limit_write(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// A peer that never sends and takes `room` bytes.
    struct Stuck {
        room: usize,
        input: Vec<u8>,
    }

    impl AsyncRead for Stuck {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.input.is_empty() {
                return Poll::Pending;
            }
            buf.put_slice(&std::mem::take(&mut self.input));
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Stuck {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            let taken = buf.len().min(self.room);
            self.room -= taken;
            if taken == 0 { Poll::Pending } else { Poll::Ready(Ok(taken)) }
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    const LIMITS: Limits = Limits {
        header: Duration::from_millis(100),
        write: Duration::from_millis(200),
        idle: Duration::from_millis(400),
    };

    fn timed(room: usize) -> (Timed<Stuck>, Arc<Requests>) {
        let requests = Arc::new(Requests::default());
        (Timed::new(Stuck { room, input: vec![] }, LIMITS, Arc::clone(&requests)), requests)
    }

    async fn read(stream: &mut Timed<Stuck>) -> io::Result<usize> {
        let mut bytes = [0; 16];
        let mut buf = ReadBuf::new(&mut bytes);
        poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, &mut buf)).await.map(|()| buf.filled().len())
    }

    /// On a clock that stands still while there is something to do, and then jumps to the next timer.
    fn run(test: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(test);
    }

    fn assert_took(started: Instant, wanted: Duration) {
        let took = started.elapsed();
        // tokio's timers are exact to a millisecond.
        assert!(
            took >= wanted && took <= wanted + Duration::from_millis(2),
            "{took:?} instead of {wanted:?}"
        );
    }

    #[test]
    fn a_head_has_the_header_limit_and_idling_its_own() {
        run(async {
            let (mut stream, requests) = timed(0);
            let started = Instant::now();
            assert_eq!(read(&mut stream).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
            assert_took(started, LIMITS.header);

            drop(requests.begin());
            let started = Instant::now();
            assert!(read(&mut stream).await.is_err());
            assert_took(started, LIMITS.idle);

            drop(requests.begin());
            stream.stream.input = b"GET".to_vec();
            assert_eq!(read(&mut stream).await.unwrap(), 3);
            let started = Instant::now();
            assert!(read(&mut stream).await.is_err());
            assert_took(started, LIMITS.header);
        });
    }

    #[test]
    fn no_read_limit_while_a_request_is_answered() {
        run(async {
            let (mut stream, requests) = timed(0);
            let _answering = requests.begin();
            let patience = LIMITS.idle + LIMITS.header;
            assert!(tokio::time::timeout(patience, read(&mut stream)).await.is_err());
        });
    }

    #[test]
    fn the_write_limit_spans_the_whole_answer() {
        run(async {
            let (mut stream, _requests) = timed(1);
            let started = Instant::now();
            let failed = loop {
                let write = poll_fn(|cx| Pin::new(&mut stream).poll_write(cx, b"xy"));
                match tokio::time::timeout(Duration::from_millis(50), write).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(failed)) => break failed,
                    Err(_) => stream.stream.room = 1,
                }
            };
            assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
            assert_took(started, LIMITS.write);
        });
    }

    #[test]
    fn a_flushed_answer_gives_the_next_one_its_full_time() {
        run(async {
            let (mut stream, _requests) = timed(0);
            let blocked = poll_fn(|cx| Pin::new(&mut stream).poll_write(cx, b"x"));
            assert!(tokio::time::timeout(Duration::from_millis(150), blocked).await.is_err());
            poll_fn(|cx| Pin::new(&mut stream).poll_flush(cx)).await.unwrap();
            let started = Instant::now();
            assert!(poll_fn(|cx| Pin::new(&mut stream).poll_write(cx, b"x")).await.is_err());
            assert_took(started, LIMITS.write);
            let started = Instant::now();
            stream.writing = None;
            assert!(poll_fn(|cx| Pin::new(&mut stream).poll_shutdown(cx)).await.is_err());
            assert_took(started, LIMITS.write);
        });
    }
}
