//! The listener: connections in, bounded in number, size and time.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use mainstay_contract::render::shorten;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::body::{Held, lock};
use super::stall::Stall;
use super::{Connected, Front};
use crate::log::Seldom;
use crate::serve::is_shortage;
use crate::upgrade::Pause;

/// Headers of one request.
const HEADERS: usize = 64;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// Pause after a connection could not be accepted.
const RETRY: Duration = Duration::from_millis(20);
/// Pause between two looks whether a connection is idle.
const LOOK: Duration = Duration::from_millis(1);
/// How often idle sessions are looked for.
const SWEEP: Duration = Duration::from_secs(5);
/// Characters of a request's path that operators read.
const PATH: usize = 200;
/// Time for a client above the limit of connections to take its answer.
const LAST_ANSWER: Duration = Duration::from_secs(1);
/// The answer to a client above the limit of connections.
const TURNED_AWAY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// Listens on an address.
pub(crate) fn bind(address: SocketAddr) -> io::Result<Arc<TcpListener>> {
    let domain = match address {
        SocketAddr::V4(_) => rustix::net::AddressFamily::INET,
        SocketAddr::V6(_) => rustix::net::AddressFamily::INET6,
    };
    let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(domain, rustix::net::SocketType::STREAM, flags, None)?;
    // A host that was stopped a moment ago leaves connections that are still closing.
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    TcpListener::from_std(std::net::TcpListener::from(socket)).map(Arc::new)
}

/// A front that is listening.
#[derive(Debug)]
pub(crate) struct Listening {
    stop: watch::Sender<bool>,
    done: tokio::task::JoinHandle<()>,
}

impl Listening {
    /// Takes no more connections, and waits until those that are there have their answers, at most
    /// so long.
    pub(crate) async fn drain(self, patience: Duration) {
        let _ = self.stop.send(true);
        let _ = tokio::time::timeout(patience, self.done).await;
    }
}

/// A connection on which nothing is half done, with the bytes that were read of the next request.
#[derive(Debug)]
pub(crate) struct Idle {
    pub(super) stream: TcpStream,
    pub(super) unread: Bytes,
}

/// Accepts connections until `closed`, and serves them until it is told to stop. `idle` were accepted before.
pub(crate) fn start(
    listener: Arc<TcpListener>,
    front: Arc<Front>,
    idle: Vec<Idle>,
    closed: watch::Receiver<bool>,
    pause: Pause,
) -> Listening {
    let most = allow_descriptors(front.limits.http_connections);
    let (stop, stopped) = watch::channel(false);
    let sweeping = Arc::clone(&front);
    let mut until = stopped.clone();
    tokio::spawn(async move {
        let idle = Duration::from_millis(sweeping.limits.http_session_idle_ms);
        let every = SWEEP.min(idle);
        while tokio::time::timeout(every, until.changed()).await.is_err() {
            sweeping.table.sweep(idle);
        }
    });
    let open = Open {
        front,
        tasks: JoinSet::new(),
        number: 0,
        stop: stopped,
        pause,
    };
    let done = tokio::spawn(accept(listener, open, idle, most, closed));
    Listening { stop, done }
}

/// How the answer to a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    ByAnswer,
    /// It is a stream of a session: its client resumes it after an upgrade.
    Resumed,
    /// It is a stream that no answer ends: its client opens it again after an upgrade.
    Reopened,
}

tokio::task_local! {
    /// The connection that a task serves.
    static SERVED: Arc<Connection>;
}

/// Names the request that this task serves, for operators.
pub(super) fn name_request(name: String) {
    let _ = SERVED.try_with(|served| {
        if let Some(current) = &mut *lock(&served.current) {
            current.name = name;
        }
    });
}

/// Notes how the request that this task serves will end.
pub(super) fn note_end(ends: Ends) {
    let _ = SERVED.try_with(|served| served.note_end(ends));
}

/// The last request of a connection.
#[derive(Debug)]
struct Current {
    method: Method,
    uri: Uri,
    /// The tool that it calls, once that is known.
    name: String,
    ends: Ends,
}

/// Facts about a connection.
#[derive(Debug)]
pub(super) struct Connection {
    peer: Option<SocketAddr>,
    current: Mutex<Option<Current>>,
    /// Requests in flight on it.
    busy: AtomicUsize,
    idle_since: Mutex<Instant>,
    leave: Notify,
    /// Something was written and not yet flushed.
    unflushed: Arc<AtomicBool>,
}

impl Connection {
    /// True if the answer to its last request is not finished, and ends as `how` wants.
    pub(super) fn has(&self, how: impl Fn(Ends) -> bool) -> bool {
        let ends = || lock(&self.current).as_ref().map(|current| current.ends);
        !self.is_at_rest() && how(ends().unwrap_or(Ends::Reopened))
    }

    /// Its last request, and where it comes from.
    pub(super) fn describe(&self) -> String {
        let current = lock(&self.current);
        let request = current.as_ref().map_or_else(String::new, |current| {
            let (method, path) = (&current.method, shorten(current.uri.path(), PATH));
            match current.name.as_str() {
                "" => format!("{method} {path}"),
                name => format!("{method} {path}: {name}"),
            }
        });
        match self.peer {
            Some(peer) => format!("{request} from {peer}"),
            None => request,
        }
    }

    /// Closes it.
    pub(super) fn leave(&self) {
        self.leave.notify_one();
    }

    fn note_end(&self, ends: Ends) {
        if let Some(current) = &mut *lock(&self.current) {
            current.ends = ends;
        }
    }

    /// True if nothing is half done here.
    fn is_at_rest(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0 && !self.unflushed.load(Ordering::Relaxed)
    }

    /// Waits until the host pauses and nothing is half done here.
    async fn rests(&self, pause: &Pause) {
        loop {
            pause.begun().await;
            if self.is_at_rest() {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// A request in flight on a connection.
#[derive(Debug)]
struct Busy(Arc<Connection>);

impl Busy {
    fn begin(connection: Arc<Connection>, request: &Request<Incoming>) -> Self {
        connection.busy.fetch_add(1, Ordering::Relaxed);
        *lock(&connection.current) = Some(Current {
            method: request.method().clone(),
            uri: request.uri().clone(),
            name: String::new(),
            ends: Ends::ByAnswer,
        });
        Self(connection)
    }
}

impl Held for Busy {}

impl Drop for Busy {
    fn drop(&mut self) {
        *lock(&self.0.idle_since) = Instant::now();
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) type Connections = Mutex<BTreeMap<u64, Arc<Connection>>>;

/// The connections that are open.
struct Open {
    front: Arc<Front>,
    tasks: JoinSet<Option<Idle>>,
    number: u64,
    stop: watch::Receiver<bool>,
    pause: Pause,
}

impl Open {
    fn serve(&mut self, idle: Idle) {
        self.number += 1;
        let number = self.number;
        let counts = &self.front.counts;
        counts.connections.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection {
            peer: idle.stream.peer_addr().ok(),
            current: Mutex::new(None),
            busy: AtomicUsize::new(0),
            idle_since: Mutex::new(Instant::now()),
            leave: Notify::new(),
            unflushed: Arc::default(),
        });
        lock(&self.front.connections).insert(number, Arc::clone(&connection));
        let front = Arc::clone(&self.front);
        let (stop, pause) = (self.stop.clone(), self.pause.clone());
        self.tasks
            .spawn(SERVED.scope(Arc::clone(&connection), async move {
                let idle = serve(idle, Arc::clone(&front), &connection, stop, pause).await;
                front.counts.connections.fetch_sub(1, Ordering::Relaxed);
                lock(&front.connections).remove(&number);
                idle
            }));
    }

    /// Gives all connections to the front while the host pauses, and serves them again when it continues.
    async fn pause(&mut self, mut parked: Vec<Idle>) {
        let pause = self.pause.clone();
        loop {
            tokio::select! {
                biased;
                ended = self.tasks.join_next() => match ended {
                    Some(ended) => parked.extend(ended.ok().flatten()),
                    None => break,
                },
                () = pause.over() => break,
            }
        }
        if self.tasks.is_empty() {
            self.front.park(parked);
            pause.over().await;
            parked = self.front.unpark();
        }
        for idle in parked {
            self.serve(idle);
        }
    }
}

/// The state with which the loop of [`accept`] continues.
enum Next {
    Accepted(io::Result<(TcpStream, SocketAddr)>),
    Ended(Option<Idle>),
    Drained,
    Paused,
    Closed,
}

async fn accept(
    listener: Arc<TcpListener>,
    mut open: Open,
    idle: Vec<Idle>,
    most: usize,
    mut closed: watch::Receiver<bool>,
) {
    let mut warning = Seldom::default();
    let pause = open.pause.clone();
    let mut draining = open.front.draining.subscribe();
    idle.into_iter().for_each(|idle| open.serve(idle));
    loop {
        let is_draining = *draining.borrow_and_update();
        let next = tokio::select! {
            () = pause.begun() => Next::Paused,
            // New connections wait while the host drains.
            accepted = listener.accept(), if !is_draining => Next::Accepted(accepted),
            Some(ended) = open.tasks.join_next(), if !open.tasks.is_empty() => {
                Next::Ended(ended.ok().flatten())
            }
            Ok(()) = draining.changed() => Next::Drained,
            _ = closed.wait_for(|closed| *closed) => Next::Closed,
        };
        let accepted = match next {
            Next::Accepted(accepted) => accepted,
            Next::Ended(Some(idle)) => {
                open.pause(vec![idle]).await;
                continue;
            }
            Next::Paused => {
                open.pause(Vec::new()).await;
                continue;
            }
            Next::Ended(None) | Next::Drained => continue,
            Next::Closed => break,
        };
        let front = &open.front;
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                warning.warn(&front.log, &format!("reason=accept_failed {error}"));
                if is_shortage(&error) {
                    make_way(&front.connections);
                }
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        if lock(&front.connections).len() >= most && !make_way(&front.connections) {
            let counts = &front.counts;
            counts.turned_away_total.fetch_add(1, Ordering::Relaxed);
            open.tasks.spawn(turn_away(stream));
            continue;
        }
        let counts = &front.counts;
        counts.connections_total.fetch_add(1, Ordering::Relaxed);
        let unread = Bytes::new();
        open.serve(Idle { stream, unread });
    }
    drop(listener);
    while open.tasks.join_next().await.is_some() {}
}

/// The connection that has been idle for longest leaves. False if none is idle.
fn make_way(connections: &Connections) -> bool {
    let mut connections = lock(connections);
    let idle = connections
        .iter()
        .filter(|(_, connection)| connection.busy.load(Ordering::Relaxed) == 0)
        .min_by_key(|(_, connection)| *lock(&connection.idle_since))
        .map(|(number, _)| *number);
    let leaves = idle.and_then(|number| connections.remove(&number));
    if let Some(connection) = &leaves {
        connection.leave();
    }
    leaves.is_some()
}

async fn turn_away(stream: TcpStream) -> Option<Idle> {
    let writable = tokio::time::timeout(LAST_ANSWER, stream.writable());
    if writable.await.is_ok() {
        let _ = stream.try_write(TURNED_AWAY);
    }
    None
}

/// Serves a connection to its end, or until the host pauses.
async fn serve(
    Idle {
        stream,
        unread: first,
    }: Idle,
    front: Arc<Front>,
    connection: &Arc<Connection>,
    mut stop: watch::Receiver<bool>,
    pause: Pause,
) -> Option<Idle> {
    let (Ok(local), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else {
        return None;
    };
    let _ = stream.set_nodelay(true);
    let limits = front.limits.clone();
    let unread = Arc::new(AtomicBool::new(false));
    let service = service_fn(|request: Request<Incoming>| {
        let (front, connection) = (Arc::clone(&front), Arc::clone(connection));
        let (has_body, unread) = (!request.body().is_end_stream(), Arc::clone(&unread));
        async move {
            let busy = Busy::begin(Arc::clone(&connection), &request);
            let mut answer = front.answer(request, Connected { local, peer }).await;
            connection.note_end(answer.body().ends());
            if *front.draining.borrow() {
                let close = HeaderValue::from_static("close");
                answer.headers_mut().insert(CONNECTION, close);
            }
            if has_body && !answer.status().is_success() {
                unread.store(true, Ordering::Relaxed);
            }
            answer.body_mut().hold(busy);
            Ok::<_, Infallible>(answer)
        }
    });
    let patience = Duration::from_millis(limits.http_body_ms);
    let unflushed = Arc::clone(&connection.unflushed);
    let stream = Stall::new(stream, first, patience, Arc::clone(&unread), unflushed);
    let io = TokioIo::new(stream);
    let mut served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(limits.http_header_ms))
        .max_buf_size(limits.http_header_bytes)
        .max_headers(HEADERS)
        .serve_connection(io, service);
    tokio::select! {
        _ = &mut served => return None,
        _ = stop.changed() => {}
        // The connection is idle: no answer is open.
        () = connection.leave.notified() => return None,
        () = connection.rests(&pause) => {
            let parts = served.into_parts();
            let (stream, first) = parts.io.into_inner().into_parts();
            // The rest of a body that was refused is not the beginning of a request.
            let is_clean = !unread.load(Ordering::Relaxed);
            let unread = Bytes::from([&*parts.read_buf, &*first].concat());
            return is_clean.then_some(Idle { stream, unread });
        }
    }
    Pin::new(&mut served).graceful_shutdown();
    let _ = served.await;
    None
}

/// Connections need descriptors, and the default of many systems is too few. Gives the number of connections
/// that leaves some for workers and files.
fn allow_descriptors(connections: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let wanted = connections as u64 + 512;
    let now = getrlimit(Resource::Nofile);
    let granted = || getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if now.current.is_some_and(|current| current < wanted) {
        let current = now.maximum.map_or(wanted, |most| most.min(wanted));
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(current),
                maximum: now.maximum,
            },
        );
    }
    let room = usize::try_from(granted() / 4 * 3).unwrap_or(usize::MAX);
    connections.min(room).max(1)
}
