//! `refrain explain`: why the data of a flow was not saved.

use std::io::{self, Write};

use anyhow::bail;
use refrain_gateway::explain::{Cause, Explanation};

use crate::{
    local::AdminArguments,
    status::{columns, sums},
    table::{Table, age, bytes},
};

#[derive(clap::Args)]
pub(crate) struct ExplainArguments {
    /// Explain the flow with this number, as shown by `refrain status`
    #[arg(value_name = "FLOW")]
    flow: Option<u64>,
    /// Explain the flow that ended last
    #[arg(long, conflicts_with = "flow")]
    last: bool,
    #[command(flatten)]
    admin: AdminArguments,
    /// Print explanations as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &ExplainArguments) -> anyhow::Result<()> {
    let query = match arguments.flow {
        Some(number) => format!("explain/{number}"),
        None if arguments.last => "explain/last".to_owned(),
        None => "explain".to_owned(),
    };
    let (place, json) = arguments.admin.page(&query)?;
    let Ok(explanations) = serde_json::from_str::<Vec<Explanation>>(&json) else {
        bail!("the gateway at {place} has another version: restart it with this one");
    };
    if explanations.is_empty() {
        match arguments.flow {
            Some(number) => bail!(
                "no flow with the number {number}: `refrain status` lists those that are open, `refrain explain` \
                 the last that ended"
            ),
            None if arguments.last => bail!("no flow has ended yet"),
            None => {}
        }
    }
    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{json}")?;
    } else if arguments.flow.is_none() && !arguments.last {
        list(&explanations, &mut out)?;
    } else {
        for (index, explanation) in explanations.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            explain(explanation, &mut out)?;
        }
    }
    Ok(())
}

/// A row for each flow, with the cause of most of its bytes on the link.
fn list(explanations: &[Explanation], out: &mut impl Write) -> io::Result<()> {
    if explanations.is_empty() {
        return writeln!(out, "no flow has ended yet");
    }
    let mut table = Table::new("flow  <target  ?ended  app  link  saved  ?<most of link");
    for explanation in explanations {
        let flow = &explanation.flow;
        let causes = explanation.sent.iter().chain(&explanation.received);
        let greatest = causes.max_by_key(|cause| cause.link_bytes);
        let [app, link, saved] = sums::of_flow(flow);
        table.row([
            flow.id.to_string(),
            flow.target.clone(),
            explanation
                .ended_s
                .map_or_else(String::new, |ago| format!("{} ago", age(ago))),
            app,
            link,
            saved,
            greatest.map_or_else(String::new, |cause| cause.cause.clone()),
        ]);
    }
    table.print_within(columns(), out)
}

fn explain(explanation: &Explanation, out: &mut impl Write) -> io::Result<()> {
    let flow = &explanation.flow;
    let opened = match flow.opened.as_str() {
        "out" => "opened at this end",
        _ => "opened at the other end",
    };
    let ended = match explanation.ended_s {
        Some(ago) => format!("ended {} ago, after {}", age(ago), age(flow.age_s)),
        None => format!("open for {}", age(flow.age_s)),
    };
    let (number, target, peer) = (flow.id, &flow.target, &flow.peer);
    writeln!(
        out,
        "flow {number}: {target}, peer {peer}, {opened}, {ended}"
    )?;
    let effort = &explanation.effort;
    writeln!(
        out,
        "mode {}; effort here: sampling period {} B, zstd {} ({})",
        explanation.mode, effort.period_bytes, effort.zstd_level, effort.reason
    )?;
    writeln!(out)?;
    sums::table(flow).print(out)?;
    let mut table = Table::new("on the link  <direction  <cause");
    for (direction, causes) in [
        ("sent", &explanation.sent),
        ("received", &explanation.received),
    ] {
        for Cause {
            link_bytes, text, ..
        } in causes
        {
            table.row([bytes(*link_bytes), direction.to_owned(), text.clone()]);
        }
    }
    writeln!(out)?;
    table.print(out)?;
    writeln!(out)?;
    match &explanation.advice {
        Some(advice) => writeln!(out, "to save more: {}\n  {}", advice.setting, advice.text),
        None => writeln!(out, "no setting would save more of this flow"),
    }
}
