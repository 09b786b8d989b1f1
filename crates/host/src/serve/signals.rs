//! The signals of a host, as events.

use std::os::fd::OwnedFd;

use rustix::process::Signal;
use tokio::io::Interest;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::ServeError;
use crate::engine::Event;
use crate::io::watch;
use crate::upgrade::Pause;

/// Bytes of one signal that is read from a signalfd; its number comes first.
const INFO: usize = 128;

fn failed(source: std::io::Error) -> ServeError {
    ServeError::Io {
        what: "watch for signals",
        source,
    }
}

/// Reports the signals that end a host of one command.
pub(super) fn watch_ends(events: &mpsc::Sender<Event>) -> Result<(), ServeError> {
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let mut signals = signal(kind).map_err(failed)?;
        let events = events.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if events.send(Event::Stop).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok(())
}

/// Reports the signals that a signalfd reads. While the host pauses they stay pending: the program that continues
/// this one reads them.
pub(super) fn watch_blocked(
    signals: OwnedFd,
    events: &mpsc::Sender<Event>,
    pause: Pause,
) -> Result<(), ServeError> {
    let signals = watch(signals, Interest::READABLE).map_err(failed)?;
    let events = events.clone();
    tokio::spawn(async move {
        loop {
            // A signal is read only when its event can be queued at once.
            let Ok(permit) = events.reserve().await else {
                return;
            };
            let mut ready = tokio::select! {
                biased;
                () = pause.begun() => {
                    drop(permit);
                    pause.over().await;
                    continue;
                }
                ready = signals.readable() => match ready {
                    Ok(ready) => ready,
                    Err(_) => return,
                },
            };
            let mut info = [0; INFO];
            let read = ready.try_io(|signals| Ok(rustix::io::read(signals, &mut info)?));
            if let Ok(Ok(INFO)) = read
                && let Some(event) = event_of(&info)
            {
                permit.send(event);
            }
        }
    });
    Ok(())
}

fn event_of(info: &[u8; INFO]) -> Option<Event> {
    let (number, _) = info.split_first_chunk()?;
    let number = u32::from_ne_bytes(*number).cast_signed();
    match Signal::from_named_raw(number)? {
        Signal::INT | Signal::TERM => Some(Event::Stop),
        Signal::HUP => Some(Event::Reread),
        Signal::USR2 => Some(Event::Upgrade),
        _ => None,
    }
}
