//! `refrain status`: what a running gateway does.

mod tables;
mod watch;

use std::{io::Write, path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use refrain_gateway::{status::Status, target::Target, text_file::remove_byte_order_mark};

#[derive(clap::Args, Clone)]
pub struct StatusArguments {
    /// The gateway's admin listener
    #[arg(long, env = "REFRAIN_ADMIN", value_name = "HOST:PORT")]
    admin: Target,
    /// A file that holds the admin token
    #[arg(long, env = "REFRAIN_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// Print the status as JSON
    #[arg(long)]
    json: bool,
    /// Show it again and again, each SECONDS, until Ctrl-C [default: 2]
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "2",
        value_parser = parse_interval,
        conflicts_with = "json"
    )]
    watch: Option<Duration>,
}

pub fn run(arguments: &StatusArguments) -> anyhow::Result<()> {
    if let Some(interval) = arguments.watch {
        return watch::watch(arguments, interval);
    }
    let mut out = std::io::stdout().lock();
    match arguments.json {
        true => writeln!(out, "{}", fetch(arguments)?)?,
        false => write!(out, "{}", show(arguments)?)?,
    }
    Ok(())
}

/// The status as tables.
fn show(arguments: &StatusArguments) -> anyhow::Result<String> {
    let text = fetch(arguments)?;
    let status: Status = serde_json::from_str(&text).context("the answer is no status")?;
    let mut tables = Vec::new();
    tables::print(&status, &mut tables)?;
    Ok(String::from_utf8(tables)?)
}

fn fetch(arguments: &StatusArguments) -> anyhow::Result<String> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(Duration::from_secs(5)))
        .http_status_as_error(false)
        .build()
        .into();
    let mut request = agent.get(format!("http://{}/status", arguments.admin));
    if let Some(path) = &arguments.admin_token_file {
        let called = || path.display().to_string();
        let mut token = std::fs::read(path).with_context(called)?;
        remove_byte_order_mark(&mut token);
        let token = String::from_utf8(token).with_context(called)?;
        request = request.header("Authorization", format!("Bearer {}", token.trim()));
    }
    let mut response = request.call().with_context(|| {
        format!(
            "no gateway answers at {}: is it running, with --admin?",
            arguments.admin
        )
    })?;
    match response.status().as_u16() {
        200 => Ok(response.body_mut().read_to_string()?),
        401 => bail!("the gateway wants its admin token: give --admin-token-file"),
        other => bail!(
            "{} answered with HTTP status {other}: is it a refrain gateway?",
            arguments.admin
        ),
    }
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|&seconds: &f64| seconds >= 0.1);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "expected a number of seconds, 0.1 or more".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_a_tenth_of_a_second_or_more() {
        assert_eq!(parse_interval("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "0.01", "-1", "NaN", "inf", "1e300", "1s", ""] {
            assert!(parse_interval(text).is_err(), "{text}");
        }
    }
}
