//! What a near end says at its start of the history that it has for its realm.

use refrain_store::{Realm, RealmStat, StoreStat};

use super::NeighbourReport;

/// Realms that are named in a message.
const NAMED_MAX: usize = 8;

/// Says how much history the realm has; and where there is some, and none of this realm, what there is:
/// a misspelt realm answers nothing, and looks like a new one.
pub(super) fn tell(realm: &str, own: &StoreStat, also: &[NeighbourReport]) {
    let of_others = also.iter().filter_map(|neighbour| neighbour.stat.as_ref());
    let stats: Vec<&StoreStat> = [own].into_iter().chain(of_others).collect();
    let (of_realm, _) = sort(realm, &stats);
    let in_neighbours = match stats.len() {
        1 => "",
        _ => ", including those of neighbours",
    };
    tracing::info!("history of realm \"{realm}\": {of_realm} chunks{in_neighbours}");
    if let Some(warning) = unknown(realm, &stats) {
        tracing::warn!("{warning}");
    }
}

/// What is to be said where there is history, and none of this realm.
pub(super) fn unknown(realm: &str, stats: &[&StoreStat]) -> Option<String> {
    let (of_realm, others) = sort(realm, stats);
    let others = others.join(", ");
    (of_realm == 0 && !others.is_empty()).then(|| {
        format!(
            "the store has no history of realm \"{realm}\" yet, only of: {others} (use the same --realm as \
             before, and as in `refrain store add`)"
        )
    })
}

/// Chunks of a realm, and what other realms that have some are called.
fn sort(realm: &str, stats: &[&StoreStat]) -> (u64, Vec<String>) {
    let wanted = Realm::named(realm).to_string();
    let all = stats.iter().flat_map(|stat| &stat.realms);
    let (own, others): (Vec<&RealmStat>, _) = all
        .filter(|known| known.chunks > 0)
        .partition(|known| known.realm == wanted);
    let mut names: Vec<String> = others
        .into_iter()
        .map(|known| known.name.as_ref().unwrap_or(&known.realm).clone())
        .collect();
    names.sort();
    names.dedup();
    if names.len() > NAMED_MAX {
        let more = names.len() - NAMED_MAX;
        names.truncate(NAMED_MAX);
        names.push(format!("{more} more"));
    }
    (own.iter().map(|known| known.chunks).sum(), names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(realms: &[(&str, u64)]) -> StoreStat {
        let realms = realms.iter().map(|&(name, chunks)| RealmStat {
            realm: Realm::named(name).to_string(),
            name: Some(name.to_owned()).filter(|name| name != "secret"),
            chunks,
        });
        StoreStat {
            realms: realms.collect(),
            ..StoreStat::default()
        }
    }

    #[test]
    fn chunks_of_all_stores_count_and_other_realms_are_named_once() {
        let own = stat(&[("a", 3), ("b", 1), ("gone", 0)]);
        let other = stat(&[("a", 4), ("b", 2), ("secret", 1)]);
        let secret = Realm::named("secret").to_string();
        let (chunks, mut others) = sort("a", &[&own, &other]);
        others.sort();
        let mut expected = ["b".to_owned(), secret];
        expected.sort();
        assert_eq!((chunks, &others[..]), (7, &expected[..]));
        assert_eq!(
            sort("gone", &[&own]),
            (0, vec!["a".to_owned(), "b".to_owned()])
        );
        let names: Vec<String> = (10..30).map(|number| number.to_string()).collect();
        let many: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        let (_, others) = sort("a", &[&stat(&many)]);
        assert_eq!(others.last().map(String::as_str), Some("12 more"));
    }
}
