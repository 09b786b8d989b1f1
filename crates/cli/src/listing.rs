//! Everything beside its tools that a server offers to a model, read list by list.

use anyhow::anyhow;
use mainstay_contract::method::ListKind;
use mainstay_schema::lock::{LISTS, Surface};
use serde_json::Value;

use crate::exit::Failure;

/// Pages that a list may have.
const PAGES: usize = 1000;

/// A server's handshake, and the lists that it declares.
#[derive(Debug)]
pub(crate) struct Listing<'a> {
    handshake: &'a Value,
}

impl<'a> Listing<'a> {
    pub(crate) const fn new(handshake: &'a Value) -> Self {
        Self { handshake }
    }

    /// Reads the instructions and every list. `page` fetches one page; `None` means that the server does not
    /// know the list.
    pub(crate) fn read(
        &self,
        mut page: impl FnMut(ListKind, Option<&str>) -> Result<Option<Value>, Failure>,
    ) -> Result<Surface, Failure> {
        let instructions = self.handshake.get("instructions").and_then(Value::as_str);
        let mut surface = Surface::with_instructions(instructions.map(str::to_owned));
        for kind in LISTS.into_iter().filter(|kind| self.declares(*kind)) {
            let mut cursor: Option<String> = None;
            for number in 0.. {
                if number >= PAGES {
                    let what = kind.noun();
                    return Err(Failure::fault(anyhow!("the list of {what}s does not end")));
                }
                let Some(mut found) = page(kind, cursor.as_deref())? else {
                    break;
                };
                match found.get_mut(kind.member()).map(Value::take) {
                    Some(Value::Array(items)) => {
                        items.into_iter().for_each(|item| surface.add(kind, item));
                    }
                    _ => {
                        let what = kind.noun();
                        return Err(Failure::fault(anyhow!(
                            "the list of {what}s cannot be read"
                        )));
                    }
                }
                let next = found.get("nextCursor").and_then(Value::as_str);
                cursor = next.map(str::to_owned);
                if cursor.is_none() {
                    break;
                }
            }
        }
        Ok(surface)
    }

    fn declares(&self, kind: ListKind) -> bool {
        let capabilities = self.handshake.get("capabilities");
        capabilities.is_some_and(|all| all.get(kind.capability()).is_some())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_page_of_every_declared_list_is_read() {
        let handshake = json!({"instructions": "be kind", "capabilities": {"prompts": {}}});
        let surface = Listing::new(&handshake).read(|kind, cursor| {
            assert_eq!(kind, ListKind::Prompts);
            Ok(Some(match cursor {
                None => json!({"prompts": [{"name": "a"}], "nextCursor": "2"}),
                Some(_) => json!({"prompts": [{"name": "b"}]}),
            }))
        });
        let surface = surface.unwrap();
        assert_eq!(surface.instructions.as_deref(), Some("be kind"));
        assert_eq!(surface.count(ListKind::Prompts), 2);
    }

    #[test]
    fn a_list_that_is_unknown_is_empty_and_one_that_never_ends_is_an_error() {
        let handshake = json!({"capabilities": {"resources": {}}});
        let unknown = Listing::new(&handshake).read(|_, _| Ok(None)).unwrap();
        assert_eq!(unknown, Surface::default());
        let endless = json!({"resources": [], "nextCursor": "again"});
        let endless = Listing::new(&handshake).read(|_, _| Ok(Some(endless.clone())));
        assert!(endless.is_err());
    }
}
