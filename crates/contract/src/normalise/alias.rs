//! Other names of arguments.

use serde_json::{Map, Value};

use super::changes::{Changes, What};
use super::error::NormaliseError;
use super::pointer::Pointer;

/// Names a tool accepts for its arguments beside those in its schema.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aliases<'a> {
    /// Pairs of alias and canonical name, for the arguments themselves, not for nested objects.
    pub fields: &'a [(&'a str, &'a str)],
}

impl Aliases<'_> {
    /// Renames aliases, in the order of their declaration.
    ///
    /// An alias that the schema declares as an argument of its own is accepted as it stands and
    /// stays. Any other undeclared name would be refused, whatever the schema says about
    /// additional properties, so renaming it changes nothing that is valid.
    pub(super) fn apply(
        self,
        arguments: &mut Value,
        declared: impl Fn(&str) -> bool,
        changes: &mut Changes,
    ) -> Result<(), NormaliseError> {
        let Value::Object(arguments) = arguments else {
            return Ok(());
        };
        for &(alias, _) in self.fields {
            if arguments.contains_key(alias)
                && let Some(canonical) = self.canonical(alias, &declared)
            {
                rename(arguments, alias, canonical, changes)?;
            }
        }
        Ok(())
    }

    /// Follows chains of aliases to their end; a cycle has none.
    fn canonical<'s>(&'s self, alias: &str, declared: &impl Fn(&str) -> bool) -> Option<&'s str> {
        let next = |name: &str| {
            let pair = self
                .fields
                .iter()
                .find(|(alias, _)| *alias == name && !declared(name));
            pair.map(|&(_, canonical)| canonical)
        };
        let mut name = next(alias)?;
        for _ in self.fields {
            match next(name) {
                Some(further) => name = further,
                None => return Some(name),
            }
        }
        None
    }
}

fn rename(
    arguments: &mut Map<String, Value>,
    alias: &str,
    canonical: &str,
    changes: &mut Changes,
) -> Result<(), NormaliseError> {
    let Some(value) = arguments.remove(alias) else {
        return Ok(());
    };
    let what = match arguments.get(canonical) {
        Some(present) if *present == value => What::AliasDropped {
            alias: alias.to_owned(),
        },
        Some(_) => {
            arguments.insert(alias.to_owned(), value);
            let (alias, canonical) = (alias.to_owned(), canonical.to_owned());
            return Err(NormaliseError::AliasConflict { alias, canonical });
        }
        None => {
            arguments.insert(canonical.to_owned(), value);
            What::Renamed {
                from: alias.to_owned(),
            }
        }
    };
    changes.push(&Pointer::to_field(canonical), what);
    Ok(())
}
