//! The bytes of a direction as a sum that adds up: those of applications, less those that each layer saved, plus those
//! of the link itself, are the bytes on the link.

use refrain_gateway::status::{Direction, Flow};

use crate::table::{Table, bytes, percent};

/// The head of the columns of [`sum`].
const SUM: &str = "app  predicted  matching  zstd  overhead  link  saved";

/// Both directions of a flow.
pub(crate) fn table(flow: &Flow) -> Table {
    let mut table = Table::new(&format!("direction  {SUM}"));
    for (direction, counts) in [("sent", &flow.sent), ("received", &flow.received)] {
        let cells = [direction.to_owned()];
        table.row(cells.into_iter().chain(sum(counts)));
    }
    table
}

/// Bytes of the application, bytes on the link, and the share that was saved.
pub(crate) fn of_flow(flow: &Flow) -> [String; 3] {
    let (app, link) = both(&flow.sent, &flow.received);
    [bytes(app), bytes(link), saved(app, link)]
}

/// Bytes of applications and bytes on the link, both ways.
pub(super) fn both(sent: &Direction, received: &Direction) -> (u64, u64) {
    (
        sent.app_bytes + received.app_bytes,
        sent.link_bytes + received.link_bytes,
    )
}

/// The share of the bytes of applications that the link did not carry; negative where it carried more.
pub(super) fn saved(app: u64, link: u64) -> String {
    let share = percent(app as f64 - link as f64, app as f64);
    // A loss too small to be shown.
    share.replace("-0.0 %", "0.0 %")
}

/// What all layers left of the applications' bytes.
fn left(counts: &Direction) -> i64 {
    let predicted = counts.prediction_saved_bytes as i64;
    let saved = predicted + counts.matching_saved_bytes + counts.zstd_saved_bytes;
    counts.app_bytes as i64 - saved
}

/// What the link costs by itself, and bytes on their way, which count once they have come.
fn overhead(counts: &Direction) -> i64 {
    counts.link_bytes as i64 - left(counts)
}

/// Application bytes, what each layer made of them, what the link cost, what went over it, and
/// the share that was saved.
pub(super) fn sum(counts: &Direction) -> [String; 7] {
    let predicted = counts.prediction_saved_bytes as i64;
    [
        bytes(counts.app_bytes),
        change(-predicted),
        change(-counts.matching_saved_bytes),
        change(-counts.zstd_saved_bytes),
        change(overhead(counts)),
        bytes(counts.link_bytes),
        saved(counts.app_bytes, counts.link_bytes),
    ]
}

/// Bytes that come on top, or go.
fn change(count: i64) -> String {
    let sign = match count {
        0 => "",
        1.. => "+",
        _ => "-",
    };
    format!("{sign}{}", bytes(count.unsigned_abs()))
}
