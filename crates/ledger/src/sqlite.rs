//! The ledger in one SQLite file, in WAL mode.
//!
//! SQLite was chosen because several hosts of one user share the file, a host may be killed at any instruction,
//! and the file format is older and better tested than any that we would write. Measurements are in
//! `docs/tasks.md`.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};

use crate::error::LedgerError;
use crate::lease;
use crate::order::{NewTask, Order, Origin, Owner, Recorded, Reply, Status, Task, TaskId};
use crate::schema::{self, Identity, PAGE};
use crate::{LeaseHolder, Ledger};

/// Bytes that are reserved for the outcome of every unfinished task. A larger outcome may exceed the limit of the
/// file: only new tasks are refused.
const OUTCOME: u64 = 16 << 10;
/// Tasks that are removed or expired at a time.
const REMOVALS: u64 = 1000;
/// Tasks that are claimed at a time.
const CLAIMS: usize = 1000;

/// When the disk must have what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// At every commit: nothing is lost with the power.
    Every,
    /// At checkpoints: nothing is lost with a process, the last commits may be lost with the power.
    Checkpoints,
}

/// The limits of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of the file.
    pub bytes: u64,
    pub flush: Flush,
    /// How long the outcomes of tasks that this host records are kept, in milliseconds.
    pub retention_ms: u64,
}

/// The ledger of a host.
#[derive(Debug)]
pub struct SqliteLedger {
    path: PathBuf,
    leases: PathBuf,
    holder: String,
    settings: Settings,
    db: Connection,
    identity: Identity,
}

impl SqliteLedger {
    /// Opens the file, and makes it if it is missing. `leases` is the directory of the hosts' leases.
    pub fn open(
        path: &Path,
        leases: &Path,
        holder: &LeaseHolder,
        settings: Settings,
    ) -> Result<Self, LedgerError> {
        let (db, identity) = schema::open(path, &settings)?;
        Ok(Self {
            db,
            identity,
            path: path.to_owned(),
            leases: leases.to_owned(),
            holder: holder.as_str().to_owned(),
            settings,
        })
    }

    /// Opens the file that is at the path now. Without the host's lease another host would run its tasks, too.
    fn reopen(&mut self) -> Result<(), LedgerError> {
        if !lease::is_held(&self.leases, &self.holder) {
            return Err(LedgerError::Io {
                path: self.path.clone(),
                detail: "the state directory was removed; restart this host".to_owned(),
            });
        }
        (self.db, self.identity) = schema::open(&self.path, &self.settings)?;
        Ok(())
    }

    /// Carries out orders in one transaction.
    fn together(
        &mut self,
        now_ms: u64,
        orders: &[Order],
    ) -> Result<Vec<Result<Reply, LedgerError>>, LedgerError> {
        let fault = |error: &rusqlite::Error| LedgerError::of(&self.path, error);
        let db = &mut self.db;
        let behavior = match orders.iter().all(Order::only_reads) {
            true => TransactionBehavior::Deferred,
            false => TransactionBehavior::Immediate,
        };
        let transaction = db
            .transaction_with_behavior(behavior)
            .map_err(|error| fault(&error))?;
        let book = Book {
            path: &self.path,
            leases: &self.leases,
            holder: &self.holder,
            settings: self.settings,
            transaction: &transaction,
            now_ms,
        };
        let mut replies = Vec::with_capacity(orders.len());
        for order in orders {
            match book.apply(order) {
                Ok(reply) => replies.push(Ok(reply)),
                // A refusal by rule has changed nothing; any other may have ended the transaction.
                Err(Refused::Rule(error)) => replies.push(Err(error)),
                Err(Refused::Sqlite(error)) => return Err(fault(&error)),
            }
        }
        transaction.commit().map_err(|error| fault(&error))?;
        Ok(replies)
    }
}

impl SqliteLedger {
    /// Carries out orders in the open file.
    fn carry_out(&mut self, now_ms: u64, orders: &[Order]) -> Vec<Result<Reply, LedgerError>> {
        match self.together(now_ms, orders) {
            Ok(replies) => replies,
            Err(error) if orders.len() <= 1 => orders.iter().map(|_| Err(error.clone())).collect(),
            // One of them is to blame: each gets a transaction of its own.
            Err(_) => orders
                .iter()
                .map(|order| {
                    let alone = self.together(now_ms, std::slice::from_ref(order));
                    alone.and_then(|replies| {
                        replies.into_iter().next().unwrap_or_else(|| {
                            Err(LedgerError::Io {
                                path: self.path.clone(),
                                detail: "an order has no reply".to_owned(),
                            })
                        })
                    })
                })
                .collect(),
        }
    }
}

impl Ledger for SqliteLedger {
    fn apply(&mut self, now_ms: u64, orders: &[Order]) -> Vec<Result<Reply, LedgerError>> {
        let replies = self.carry_out(now_ms, orders);
        if schema::is_at(&self.path, self.identity) {
            return replies;
        }
        // The file was removed or replaced: its successor must have what was written to it.
        match self.reopen() {
            Ok(()) => self.carry_out(now_ms, orders),
            Err(error) => orders.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}

impl Order {
    const fn only_reads(&self) -> bool {
        matches!(
            self,
            Self::Read { .. } | Self::List { .. } | Self::Cancelled { .. }
        )
    }
}

enum Refused {
    Rule(LedgerError),
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Refused {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// The ledger inside one transaction.
struct Book<'a> {
    path: &'a Path,
    leases: &'a Path,
    holder: &'a str,
    settings: Settings,
    transaction: &'a Transaction<'a>,
    now_ms: u64,
}

const COLUMNS: &str = "id, owner, backend, tool, work, replay, origin, limit_ms, created_ms, \
                       updated_ms, holder, holders, status, ended_ms, outcome";

/// The condition for a task whose retention is not over at the time that follows.
const KEPT: &str = "ifnull(ended_ms + keep_ms, 0x7fffffffffffffff) >=";

impl Book<'_> {
    fn apply(&self, order: &Order) -> Result<Reply, Refused> {
        match order {
            Order::Record(new) => self.record(new).map(Reply::Recorded),
            Order::Finish {
                id,
                status,
                outcome,
            } => {
                let changed = self.finish(id, *status, outcome)?;
                Ok(Reply::Done(changed))
            }
            Order::Forget { id } => {
                let sql = "DELETE FROM task WHERE id = ?1 AND holder = ?2 AND ended_ms IS NULL";
                let removed = self.execute(sql, params![id.to_string(), self.holder])?;
                Ok(Reply::Done(removed > 0))
            }
            Order::Read { who, id } => Ok(Reply::Task(self.read(who, id)?.map(Box::new))),
            Order::List { who, before, most } => self.list(who, *before, *most).map(Reply::Tasks),
            Order::Cancel { who, id, outcome } => self.cancel(who, id, outcome),
            Order::Claim { backends } => self.claim(backends),
            Order::Cancelled { ids } => self.cancelled(ids),
            Order::Prune { before_ms } => {
                let sql = "DELETE FROM task WHERE id IN \
                           (SELECT id FROM task WHERE ended_ms < ?1 LIMIT ?2)";
                let removed = self.execute(sql, params![before_ms, REMOVALS])?;
                Ok(Reply::Pruned(removed as u64))
            }
            Order::Expire { outcome } => self.expire(outcome).map(Reply::Pruned),
        }
    }

    fn execute(&self, sql: &str, values: impl rusqlite::Params) -> Result<usize, Refused> {
        Ok(self.transaction.prepare(sql)?.execute(values)?)
    }

    fn record(&self, new: &NewTask) -> Result<Recorded, Refused> {
        let owner = new.owner.text();
        if let Some(key) = &new.key {
            let sql = "DELETE FROM task WHERE owner = ?1 AND tool = ?2 AND key = ?3 AND backend = ?4 \
                       AND ended_ms + keep_ms < ?5";
            let values = params![owner, new.tool, key.name, new.backend, self.now_ms];
            self.execute(sql, values)?;
            let sql = format!(
                "SELECT {COLUMNS}, arguments FROM task WHERE owner = ?1 AND tool = ?2 AND key = ?3 \
                 AND backend = ?4"
            );
            let mut known = self.transaction.prepare(&sql)?;
            let known = known
                .query_row(params![owner, new.tool, key.name, new.backend], |row| {
                    Ok((task(row)?, row.get::<_, String>(15)?))
                })
                .optional()?;
            match known {
                Some((task, arguments)) if arguments == key.arguments => {
                    return Ok(Recorded::Same(Box::new(task)));
                }
                Some(_) => return Ok(Recorded::OtherArguments),
                None => {}
            }
        }
        self.check_room(new)?;
        let sql = "INSERT INTO task (id, owner, backend, tool, work, replay, origin, limit_ms, \
                   created_ms, updated_ms, holder, holders, key, arguments, status, keep_ms) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10, 1, ?11, ?12, ?13, ?14)";
        let key = new.key.as_ref();
        self.execute(
            sql,
            params![
                new.id.to_string(),
                owner,
                new.backend,
                new.tool,
                new.work,
                new.replay,
                new.origin.as_str(),
                new.limit_ms,
                self.now_ms,
                self.holder,
                key.map(|key| &key.name),
                key.map(|key| &key.arguments),
                Status::Working.as_str(),
                self.settings.retention_ms,
            ],
        )?;
        let task = self.read(&new.owner, &new.id)?;
        let task = task.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
        Ok(Recorded::New(Box::new(task)))
    }

    /// Outcomes of tasks that were accepted must find room, so new tasks are refused first.
    fn check_room(&self, new: &NewTask) -> Result<(), Refused> {
        let number = |name: &str| {
            let value = self
                .transaction
                .pragma_query_value(None, name, |row| row.get::<_, u64>(0));
            value.map_err(Refused::from)
        };
        let used = number("page_count")?.saturating_sub(number("freelist_count")?);
        let sql = "SELECT count(*) FROM task WHERE ended_ms IS NULL";
        let unfinished: u64 = self.transaction.query_row(sql, [], |row| row.get(0))?;
        let needed = new.work.len() as u64 + (unfinished + 1) * OUTCOME;
        if used * PAGE + needed > self.settings.bytes {
            return Err(Refused::Rule(LedgerError::TooLarge {
                path: self.path.to_owned(),
                bytes: self.settings.bytes,
            }));
        }
        Ok(())
    }

    fn finish(&self, id: &TaskId, status: Status, outcome: &str) -> Result<bool, Refused> {
        let sql = "UPDATE task SET status = ?3, outcome = ?4, ended_ms = ?5, updated_ms = ?5 \
                   WHERE id = ?1 AND holder = ?2 AND ended_ms IS NULL";
        let values = params![
            id.to_string(),
            self.holder,
            status.as_str(),
            outcome,
            self.now_ms
        ];
        Ok(self.execute(sql, values)? > 0)
    }

    fn read(&self, who: &Owner, id: &TaskId) -> Result<Option<Task>, Refused> {
        let sql = format!("SELECT {COLUMNS} FROM task WHERE id = ?1 AND {KEPT} ?2");
        let mut read = self.transaction.prepare(&sql)?;
        let values = params![id.to_string(), self.now_ms];
        let found = read.query_row(values, task).optional()?;
        Ok(found.filter(|task| who.may_use(&task.owner)))
    }

    fn list(
        &self,
        who: &Owner,
        before: Option<(u64, TaskId)>,
        most: usize,
    ) -> Result<Vec<Task>, Refused> {
        let sql = format!(
            "SELECT {COLUMNS} FROM task WHERE owner = ?1 AND (created_ms, id) < (?2, ?3) \
             AND {KEPT} ?5 ORDER BY created_ms DESC, id DESC LIMIT ?4"
        );
        let mut list = self.transaction.prepare(&sql)?;
        let (ms, id) = match before {
            Some((ms, id)) => (i64::try_from(ms).unwrap_or(i64::MAX), id.to_string()),
            None => (i64::MAX, String::new()),
        };
        let rows = list.query_map(params![who.text(), ms, id, most, self.now_ms], task)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn cancel(&self, who: &Owner, id: &TaskId, outcome: &str) -> Result<Reply, Refused> {
        let Some(task) = self.read(who, id)? else {
            return Ok(Reply::Cancelled(None));
        };
        if task.ended_ms.is_some() {
            return Ok(Reply::Cancelled(Some((Box::new(task), false))));
        }
        let sql = "UPDATE task SET status = ?2, outcome = ?3, ended_ms = ?4, updated_ms = ?4 \
                   WHERE id = ?1 AND ended_ms IS NULL";
        let status = Status::Cancelled.as_str();
        self.execute(sql, params![id.to_string(), status, outcome, self.now_ms])?;
        let task = self.read(who, id)?.map(|task| (Box::new(task), true));
        Ok(Reply::Cancelled(task))
    }

    fn claim(&self, backends: &[String]) -> Result<Reply, Refused> {
        let mut claimed = Vec::new();
        let mut busy = false;
        let sql = "SELECT DISTINCT holder FROM task \
                   WHERE ended_ms IS NULL AND backend = ?1 AND holder <> ?2";
        let take = "UPDATE task SET holder = ?3, holders = holders + 1, updated_ms = ?4 \
                    WHERE id IN (SELECT id FROM task WHERE ended_ms IS NULL AND backend = ?1 \
                    AND holder = ?2 ORDER BY created_ms LIMIT ?5)";
        let taken = format!(
            "SELECT {COLUMNS} FROM task WHERE ended_ms IS NULL AND backend = ?1 AND holder = ?2 \
             AND holders > 1 AND updated_ms = ?3 ORDER BY created_ms, id"
        );
        for backend in backends {
            let mut holders = self.transaction.prepare(sql)?;
            let holders = holders.query_map(params![backend, self.holder], |row| row.get(0))?;
            let holders: Vec<String> = holders.collect::<Result<_, _>>()?;
            let mut found = 0;
            for holder in holders {
                if lease::is_dead(self.leases, &holder) {
                    let values = params![backend, holder, self.holder, self.now_ms, CLAIMS];
                    found += self.execute(take, values)?;
                } else {
                    busy = true;
                }
            }
            if found > 0 {
                let mut taken = self.transaction.prepare(&taken)?;
                let rows = taken.query_map(params![backend, self.holder, self.now_ms], task)?;
                claimed.extend(rows.collect::<Result<Vec<_>, _>>()?);
            }
        }
        Ok(Reply::Claimed {
            tasks: claimed,
            busy,
        })
    }

    fn expire(&self, outcome: &str) -> Result<u64, Refused> {
        let late = "ended_ms IS NULL AND created_ms + limit_ms + keep_ms < ?1 AND holder";
        let sql = format!("SELECT DISTINCT holder FROM task WHERE {late} <> ?2");
        let mut holders = self.transaction.prepare(&sql)?;
        let holders = holders.query_map(params![self.now_ms, self.holder], |row| row.get(0))?;
        let holders: Vec<String> = holders.collect::<Result<_, _>>()?;
        let end = format!(
            "UPDATE task SET status = ?3, outcome = ?4, ended_ms = ?1, updated_ms = ?1 \
             WHERE id IN (SELECT id FROM task WHERE {late} = ?2 LIMIT ?5)"
        );
        let status = Status::Failed.as_str();
        let mut changed = 0;
        for holder in holders {
            if lease::is_dead(self.leases, &holder) {
                let values = params![self.now_ms, holder, status, outcome, REMOVALS];
                changed += self.execute(&end, values)?;
            }
        }
        let sql = "DELETE FROM task WHERE id IN (SELECT id FROM task \
                   WHERE ended_ms IS NOT NULL AND ended_ms + keep_ms < ?1 LIMIT ?2)";
        changed += self.execute(sql, params![self.now_ms, REMOVALS])?;
        Ok(changed as u64)
    }

    fn cancelled(&self, ids: &[TaskId]) -> Result<Reply, Refused> {
        let sql = "SELECT 1 FROM task WHERE id = ?1 AND holder = ?2 AND status = ?3";
        let mut is_cancelled = self.transaction.prepare(sql)?;
        let status = Status::Cancelled.as_str();
        let mut found = Vec::new();
        for id in ids {
            if is_cancelled.exists(params![id.to_string(), self.holder, status])? {
                found.push(*id);
            }
        }
        Ok(Reply::Ids(found))
    }
}

/// Reads the columns of [`COLUMNS`].
fn task(row: &Row<'_>) -> rusqlite::Result<Task> {
    let odd = |at: usize| {
        rusqlite::Error::InvalidColumnType(at, "text".into(), rusqlite::types::Type::Text)
    };
    let text = |at: usize| row.get::<_, String>(at);
    Ok(Task {
        id: TaskId::parse(&text(0)?).ok_or_else(|| odd(0))?,
        owner: Owner::parse(&text(1)?).ok_or_else(|| odd(1))?,
        backend: text(2)?,
        tool: text(3)?,
        work: text(4)?,
        replay: text(5)?,
        origin: Origin::parse(&text(6)?).ok_or_else(|| odd(6))?,
        limit_ms: row.get(7)?,
        created_ms: row.get(8)?,
        updated_ms: row.get(9)?,
        holder: text(10)?,
        holders: row.get(11)?,
        status: Status::parse(&text(12)?).ok_or_else(|| odd(12))?,
        ended_ms: row.get(13)?,
        outcome: row.get(14)?,
    })
}
