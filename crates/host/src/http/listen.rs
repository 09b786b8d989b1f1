//! The listener: connections in, bounded in number, size and time.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper::Request;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::body::{Held, lock};
use super::stall::Stall;
use super::{Connected, Front};
use crate::log::Seldom;
use crate::serve::is_shortage;

/// Headers of one request.
const HEADERS: usize = 64;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// Pause after a connection could not be accepted.
const RETRY: Duration = Duration::from_millis(20);
/// How often idle sessions are looked for.
const SWEEP: Duration = Duration::from_secs(5);
/// What a client hears when there are too many.
const TURNED_AWAY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// Listens on an address.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
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
    TcpListener::from_std(std::net::TcpListener::from(socket))
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

/// Accepts connections until `closed`, and serves them until it is told to stop.
pub(crate) fn start(
    listener: TcpListener,
    front: Arc<Front>,
    closed: watch::Receiver<bool>,
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
    let done = tokio::spawn(accept(listener, front, most, closed, stopped));
    Listening { stop, done }
}

/// What is known about a connection.
#[derive(Debug)]
struct Connection {
    /// Requests in flight on it.
    busy: AtomicUsize,
    idle_since: Mutex<Instant>,
    leave: Notify,
}

/// A request in flight on a connection.
#[derive(Debug)]
struct Busy(Arc<Connection>);

impl Busy {
    fn begin(connection: Arc<Connection>) -> Self {
        connection.busy.fetch_add(1, Ordering::Relaxed);
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

type Connections = Arc<Mutex<BTreeMap<u64, Arc<Connection>>>>;

async fn accept(
    listener: TcpListener,
    front: Arc<Front>,
    most: usize,
    mut closed: watch::Receiver<bool>,
    stop: watch::Receiver<bool>,
) {
    let connections: Connections = Arc::default();
    let mut warning = Seldom::default();
    let mut tasks = JoinSet::new();
    let mut number = 0_u64;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
            _ = closed.wait_for(|closed| *closed) => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                warning.warn(&front.log, &format!("reason=accept_failed {error}"));
                if is_shortage(&error) {
                    make_way(&connections);
                }
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        if lock(&connections).len() >= most && !make_way(&connections) {
            front
                .counts
                .turned_away_total
                .fetch_add(1, Ordering::Relaxed);
            tasks.spawn(turn_away(stream));
            continue;
        }
        number += 1;
        let counts = &front.counts;
        counts.connections_total.fetch_add(1, Ordering::Relaxed);
        counts.connections.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection {
            busy: AtomicUsize::new(0),
            idle_since: Mutex::new(Instant::now()),
            leave: Notify::new(),
        });
        lock(&connections).insert(number, Arc::clone(&connection));
        let (front, stop, connections) =
            (Arc::clone(&front), stop.clone(), Arc::clone(&connections));
        tasks.spawn(async move {
            serve(stream, Arc::clone(&front), &connection, stop).await;
            front.counts.connections.fetch_sub(1, Ordering::Relaxed);
            lock(&connections).remove(&number);
        });
    }
    drop(listener);
    while tasks.join_next().await.is_some() {}
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
        connection.leave.notify_one();
    }
    leaves.is_some()
}

async fn turn_away(stream: TcpStream) {
    let writable = tokio::time::timeout(Duration::from_secs(1), stream.writable());
    if writable.await.is_ok() {
        let _ = stream.try_write(TURNED_AWAY);
    }
}

async fn serve(
    stream: TcpStream,
    front: Arc<Front>,
    connection: &Arc<Connection>,
    mut stop: watch::Receiver<bool>,
) {
    let (Ok(local), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else {
        return;
    };
    let _ = stream.set_nodelay(true);
    let limits = front.limits.clone();
    let unread = Arc::new(AtomicBool::new(false));
    let service = service_fn(|request: Request<Incoming>| {
        let (front, connection) = (Arc::clone(&front), Arc::clone(connection));
        let (has_body, unread) = (!request.body().is_end_stream(), Arc::clone(&unread));
        async move {
            let busy = Busy::begin(connection);
            let mut answer = front.answer(request, Connected { local, peer }).await;
            if has_body && !answer.status().is_success() {
                unread.store(true, Ordering::Relaxed);
            }
            answer.body_mut().hold(busy);
            Ok::<_, Infallible>(answer)
        }
    });
    let patience = Duration::from_millis(limits.http_body_ms);
    let io = TokioIo::new(Stall::new(stream, patience, Arc::clone(&unread)));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(limits.http_header_ms))
        .max_buf_size(limits.http_header_bytes)
        .max_headers(HEADERS)
        .serve_connection(io, service);
    tokio::pin!(served);
    tokio::select! {
        _ = &mut served => return,
        _ = stop.changed() => {}
        // Nobody waits for anything here.
        () = connection.leave.notified() => return,
    }
    served.as_mut().graceful_shutdown();
    let _ = served.await;
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
