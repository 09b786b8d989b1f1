//! Ids of requests that share a link: a number of ours that tells them apart, and the id that the
//! client gave, so that telemetry can call a request what its client calls it.

use mainstay_contract::id::RequestId;
use mainstay_contract::json::push_string;

/// Prefix of such an id, as JSON text.
const PREFIX: &str = "\"mainstay/";

/// The JSON text of an id on the link.
pub(crate) fn link_id(number: u64, client: &str) -> String {
    let mut id = String::with_capacity(client.len() + 32);
    push_string(&mut id, &format!("mainstay/{number}/{client}"));
    // An id has a longest form; the number alone always fits.
    if id.len() > RequestId::MAX_LEN {
        id = number.to_string();
    }
    id
}

/// The number in an id of the link.
pub(crate) fn number_of(id: &str) -> Option<u64> {
    let number = match id.strip_prefix(PREFIX) {
        Some(rest) => rest.split_once('/')?.0,
        None => id,
    };
    number.parse().ok()
}

/// The client's own id of a request. An id that does not come from a shared link is unchanged.
pub(crate) fn client_id(id: &RequestId) -> RequestId {
    let told = || {
        id.as_raw().strip_prefix(PREFIX)?;
        let words = id.lookup_form();
        let (_, client) = words.strip_prefix("mainstay/")?.split_once('/')?;
        RequestId::parse(client).ok()
    };
    told().unwrap_or_else(|| id.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_the_link_gives_its_number_and_the_clients_own_id_back() {
        for client in ["1", "-0.5e3", "\"a\"", r#""a\"/b\u0041é""#, "\"\""] {
            let id = link_id(42, client);
            assert_eq!(number_of(&id), Some(42), "{id}");
            let told = client_id(&RequestId::parse(&id).unwrap());
            assert_eq!(told.as_raw(), client);
        }
    }

    #[test]
    fn an_id_that_would_be_too_long_is_a_number_and_others_are_left_alone() {
        let long = format!("\"{}\"", "x".repeat(RequestId::MAX_LEN - 2));
        assert_eq!(link_id(7, &long), "7");
        assert_eq!(number_of("7"), Some(7));
        for own in ["7", "\"mainstay/x\"", "\"mainstay/7/no id\"", "\"other\""] {
            let own = RequestId::parse(own).unwrap();
            assert_eq!(client_id(&own), own);
        }
        assert_eq!(number_of("\"abc\""), None);
    }
}
