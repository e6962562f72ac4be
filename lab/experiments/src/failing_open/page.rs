//! The page.

use std::{fmt::Write, time::Duration};

use super::{
    RemovalRow,
    clients::Outcome,
    events::{Case, Event, Victim},
    observation::{New, Observation, Outcomes},
    open::{STATES, State},
    world::{WAYS, Way},
};

pub(super) const INTRODUCTION: &str = "# Failing open\n\n\
Written by `cargo run --release -p refrain-experiments -- failing-open --write docs/results-failing-open.md`, as root.\n\
It needs no data set.\n";

const TEXT: &str = "\n\
Something fails while programs are connected through a pair, and while they connect. The tables show the result for\n\
each connection, and the time. Clients and the near end are at one end of a link between network namespaces\n\
(`lab/link`). The far end and an origin are at the other end. The link has 100 Mbit/s, and 5 ms one way. All\n\
connections are real TCP of the kernel. The gateways' options are the defaults. The origin states whether a connection\n\
is *direct* or *carried*. Direct ones come from the client or from the near end, carried ones from the far end. Streams\n\
follow from their offset, and every byte is compared, in both directions.\n\n\
When the event happens, three connections are open:\n\n\
- *idle*: nothing moves. After 5.5 s, the client asks the origin once more\n\
- *transfer*: the origin streams 3 MB/s, and the client 0.8 MB/s\n\
- *half-closed*: the client has ended its side. The origin still streams, slowly\n\n\
New connections begin every 10 ms. *Opening* are those that had begun, and had no answer yet. *Recovery*: a firewall\n\
refused all packets between the gateways until the link was lost. The event comes 30 ms after this ended,\n\
while the near end dials again. Connections that were opened in this time were direct.\n\n\
| word | meaning |\n\
|---|---|\n\
| continued | no pause of 0.5 s or more |\n\
| resumed | continued after a pause of this length |\n\
| reset, refused | the error that the program gets: the number of connections, and the longest time until then, from the event or from the connection's own beginning |\n\
| direct after, carried after | each new connection that began later |\n\
| hung | no answer, reset or refusal within 5 s |\n\
| truncated | an end as if all bytes had come |\n\
| carried again | new connections, after the event was undone, for example by a restart |\n\n\
No program should see *hung*, *truncated* or wrong bytes. After each row, the firewall is byte for byte as it was before\n\
interception.\n\n\
Forwarded connections come from another namespace, for which the near end's machine is the router. refrain redirects\n\
them (`in=lan0`) and has no TPROXY. With `client_address=keep`, the far end connects from the client's address.\n\
The origin is then on a third machine, for which the far end's machine is the router. There, forwarded connections are\n\
sent to another port of this origin, which so knows that they are direct.\n\n\
The four tables were measured at the same time, each with a pair of its own. All of them share the machine, so times\n\
include the time that processes waited for a CPU.\n";

const REMOVAL: &str = "\n## Removal\n\n\
Connections that began while interception was removed, loaded again, or upgraded. One began every 3 ms. Afterwards, the\n\
firewall is as it was before interception. *Upgrade* and *purge* are the steps of the Debian package and of systemd: the\n\
units `refrain-intercept` and then `refrain-near` are stopped by SIGTERM. An upgrade starts both again, a purge deletes\n\
the program.\n\n\
| action | clients | connections | carried | direct | lost | longest connection |\n|---|---|--:|--:|--:|--:|--:|\n";

const DEATHS: &str = "\n## Death of the near end\n\n\
The same rows of the first three tables. *Lost* are new connections, of one every 10 ms in all runs.\n\n\
| event | clients | all new connections are direct after | lost until then | open connections that were reset | the last of \
them after |\n|---|---|--:|--:|--:|--:|\n";

const COINCIDENCES: &str = "\n## Cases without a row\n\n\
| case | why |\n\
|---|---|\n\
| the far end's machine is gone | the same as *link, cut* |\n\
| the whole path is cut, for direct connections too | no program reaches the service then, with or without refrain. Open connections through the pair are reset as in the row *link, cut* |\n\
| the watchdog has a full disk, no file descriptors or no memory | it writes no file, opens none, and keeps 64 bytes. The kernel ends it by `kill -9` |\n\
| `refrain run` has a full disk, or touches 4 GiB | with `--socks5`, it writes no file and has no caches. With `--config`, it is a near end itself |\n\
| a user flushes the rules in a program's network | the program has no right to do it. Root of this machine could |\n\
| Ctrl-Z for `refrain run` | it is stopped together with its program and its watchdog, and continues with them |\n\
| the watchdog of `refrain run` is stopped or was killed | nothing moves. It is not replaced: a `refrain run` that is then stopped hangs |\n\
| *opening* is empty | no connection was being opened at that moment |\n\
| `refrain run` in recovery, open connections | no connection opens without a link |\n\
| `refrain intercept on` is stopped or was killed, and then the rules are removed | two failures at once: new connections go direct. Open ones that only receive hang. Under systemd, a killed one is started again |\n\
| the watchdog is stopped or was killed less than a second ago, and then the near end is stopped | two failures at once: nothing kills the near end. New connections go direct. Open ones hang until an administrator ends it |\n";

/// A case with what was observed, or why nothing was.
pub(super) type Row = (Case, Result<Observation, &'static str>);

pub(super) fn write(
    page: &mut String,
    rows: &[Row],
    removals: &[RemovalRow],
    runs: usize,
) -> anyhow::Result<()> {
    *page += TEXT;
    for way in WAYS {
        matrix(page, way, rows, runs)?;
    }
    removal(page, removals)?;
    deaths(page, rows)?;
    *page += COINCIDENCES;
    Ok(())
}

fn matrix(page: &mut String, way: Way, rows: &[Row], runs: usize) -> anyhow::Result<()> {
    if rows.iter().all(|(case, _)| case.way != way) {
        return Ok(());
    }
    let title = title(way);
    let runs = match runs {
        1 => "was measured once".to_owned(),
        _ => format!("is the worst of {runs} runs. Rows with memory were measured once"),
    };
    writeln!(
        page,
        "\n## {title}\n\nEach cell {runs}.\n\n\
         | fails | event | idle | opening | transfer | half-closed | new connections | recovery: open | recovery: new | \
         carried again |\n|---|---|---|---|---|---|---|---|---|--:|"
    )?;
    for row in rows.iter().filter(|(case, _)| case.way == way) {
        writeln!(page, "{}", line(row))?;
    }
    Ok(())
}

fn title(way: Way) -> &'static str {
    match way {
        Way::Redirect => "Redirected programs",
        Way::Forwarded => "Forwarded connections",
        Way::Keep => "Forwarded connections, with `client_address=keep`",
        Way::Run => "Programs in `refrain run`",
    }
}

/// A row of the matrix.
pub(super) fn line((case, observed): &Row) -> String {
    let head = format!("| {} | {} |", case.victim_name(), case.event_name());
    let observation = match observed {
        Ok(observation) => observation,
        Err(obstacle) => return format!("{head} {obstacle} | | | | | | | |"),
    };
    let of = |state: State| observation.open.get(&state).map_or_else(String::new, show);
    let [idle, transfer, half_closed] = STATES.map(of);
    format!(
        "{head} {idle} | {} | {transfer} | {half_closed} | {} | {} | {} | {} |",
        show(&observation.opening),
        show_new(&observation.new),
        show(&observation.open_in_recovery),
        show_new(&observation.new_in_recovery),
        seconds(observation.carried_again),
    )
}

fn removal(page: &mut String, removals: &[RemovalRow]) -> anyhow::Result<()> {
    if removals.is_empty() {
        return Ok(());
    }
    *page += REMOVAL;
    for (way, removal, outcomes) in removals {
        let count = |of: &dyn Fn(Outcome) -> bool| -> usize {
            let outcomes = outcomes.0.iter().filter(|(outcome, _)| of(**outcome));
            outcomes.map(|(_, (count, _))| count).sum()
        };
        writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} |",
            removal.name(),
            clients(*way),
            count(&|_| true),
            count(&|outcome| outcome == Outcome::Carried),
            count(&|outcome| outcome == Outcome::Direct),
            count(&Outcome::is_lost),
            seconds(outcomes.longest(|_| true)),
        )?;
    }
    Ok(())
}

fn clients(way: Way) -> &'static str {
    match way {
        Way::Redirect => "programs",
        Way::Forwarded => "forwarded",
        Way::Keep => "forwarded, `keep`",
        Way::Run => "`run`",
    }
}

/// Whether the case is the death of a near end to which a firewall redirects connections.
pub(super) fn is_death(case: Case) -> bool {
    use Event::*;
    let is_death = matches!(case.event, Kill | KillLarge | OutOfMemory | Stop);
    is_death && case.victim == Victim::Near && case.way != Way::Run
}

fn deaths(page: &mut String, rows: &[Row]) -> anyhow::Result<()> {
    let deaths = rows.iter().filter(|(case, _)| is_death(*case));
    let mut deaths = deaths
        .filter_map(|(case, row)| Some((case, row.as_ref().ok()?)))
        .peekable();
    if deaths.peek().is_none() {
        return Ok(());
    }
    *page += DEATHS;
    for (case, observation) in deaths {
        let count = |outcomes: &Outcomes| -> usize {
            let lost = outcomes.0.iter().filter(|(outcome, _)| outcome.is_lost());
            lost.map(|(_, (count, _))| count).sum()
        };
        let open = observation.all_open();
        writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} |",
            case.event_name(),
            clients(case.way),
            seconds(observation.new.settled_after),
            count(&observation.new.lost),
            count(&open),
            seconds(open.longest(Outcome::is_lost)),
        )?;
    }
    Ok(())
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

fn show(outcomes: &Outcomes) -> String {
    let parts = outcomes.0.iter().map(|(outcome, (count, longest))| {
        let name = outcome.name();
        match (outcome.is_lost() || *outcome == Outcome::Resumed, *count) {
            (true, 1) => format!("{name} {}", seconds(*longest)),
            (true, _) => format!("{count}× {name} {}", seconds(*longest)),
            (false, _) => name.to_owned(),
        }
    });
    parts.collect::<Vec<_>>().join(", ")
}

fn show_new(new: &New) -> String {
    let settled = new.settled.0.keys().map(|outcome| outcome.name());
    let settled = settled.collect::<Vec<_>>().join(" or ");
    let is_settled_lost = new.settled.0.keys().any(|outcome| outcome.is_lost());
    if new.lost.0.is_empty() {
        return match new.settled_after.is_zero() {
            true => settled,
            false => format!("{settled} after {}", seconds(new.settled_after)),
        };
    }
    let lost = show(&new.lost);
    let served = new.served.0.keys().map(|outcome| outcome.name());
    match is_settled_lost {
        true if new.served.0.is_empty() => lost,
        true => format!("{lost}, others {}", served.collect::<Vec<_>>().join(" or ")),
        false => format!(
            "{settled} after {}, before: {lost}",
            seconds(new.settled_after)
        ),
    }
}
