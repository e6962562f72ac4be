//! What is to be loaded, from the file of a gateway.

use anyhow::{anyhow, bail};
use nix::unistd::{Group, User};
use refrain_gateway::{
    arguments::Far,
    intercept::{
        rule::InterceptRule,
        table::{Gateway, script_of_far_end},
    },
};

use super::{ControlGroups, OnArguments, can_copy_dns, loops};
use crate::{gateways, local, stderr, usage::UsageError};

/// Who runs gateways as a service.
pub(crate) const SERVICE_USER: &str = "refrain";

/// The rules of a near end, or the chain of a far end.
pub(super) struct Ruleset {
    /// None at a far end.
    pub rules: Vec<InterceptRule>,
    /// The near end that gets the connections.
    gateway: Option<Gateway>,
}

impl Ruleset {
    pub(super) fn read(arguments: &OnArguments) -> anyhow::Result<Ruleset> {
        match arguments.far {
            true => of_far_end(arguments),
            false => of_near_end(arguments),
        }
    }

    pub(super) fn script(&self, groups: &ControlGroups) -> String {
        match &self.gateway {
            Some(gateway) => groups.script(&self.rules, gateway),
            None => script_of_far_end(),
        }
    }

    /// Warns of far ends on this machine whose connections would be redirected.
    pub(super) fn warn_of_loops(&self) {
        let (Some(gateway), Ok(looked)) = (&self.gateway, local::look()) else {
            return;
        };
        for process in loops::redirected_far_ends(&looked.found, &self.rules, gateway.user) {
            stderr::warn(format!("{} ({})", loops::described(process), loops::ADVICE));
        }
    }
}

fn of_far_end(arguments: &OnArguments) -> anyhow::Result<Ruleset> {
    let config = gateways::config_of::<Far>(&arguments.config, &[])?;
    if config.client_addresses.is_empty() {
        let file = arguments.config.display();
        let text = "add client_addresses = [\"10.0.0.0/8\"], the addresses of clients that it connects from";
        return Err(UsageError(anyhow!("{file}: {text}")).into());
    }
    Ok(Ruleset {
        rules: Vec::new(),
        gateway: None,
    })
}

fn of_near_end(arguments: &OnArguments) -> anyhow::Result<Ruleset> {
    let file = arguments.config.display();
    let config =
        gateways::near_end_of(&arguments.config, &[]).map_err(
            |error| match gateways::config_of::<Far>(&arguments.config, &[]) {
                Ok(_) => {
                    UsageError(anyhow!("{error} (for the file of a far end, add --far)")).into()
                }
                Err(_) => error,
            },
        )?;
    let Some(port) = config.redirected_port() else {
        return Err(UsageError(anyhow!(
            "{file}: add transparent = \"PORT\", the port for redirected connections"
        ))
        .into());
    };
    let given = arguments.rule.iter();
    let rules: Vec<_> = given.chain(&config.intercept).cloned().collect();
    if rules.is_empty() {
        let text = "no rule: add intercept = [\"port=80,443 dst=10.20.0.0/16\"] to";
        let end = "`refrain intercept off` removes loaded rules";
        return Err(UsageError(anyhow!("{text} {file}, or give --rule ({end})")).into());
    }
    InterceptRule::check_all(&rules).map_err(|error| UsageError(error.into()))?;
    for rule in &rules {
        check_accounts(rule)?;
    }
    for (hidden, earlier) in InterceptRule::hidden(&rules) {
        crate::stderr::warn(format!(
            "the rule \"{hidden}\" never matches: \"{earlier}\" before it has all of its connections"
        ));
    }
    let is_unknown = |rule: &&InterceptRule| rule.has_name() || !config.has_listener_of(rule);
    if let Some(rule) = arguments.rule.iter().find(is_unknown) {
        let text = "the near end must know of rules with name, client_address, action=pass, refusal and on_refusal";
        return Err(UsageError(anyhow!("--rule \"{rule}\": {text} (add it to {file})")).into());
    }
    let mut forwarded = arguments.rule.iter().filter(|rule| rule.is_forwarded());
    if let Some(rule) = forwarded.next().filter(|_| !config.takes_forwarded()) {
        let text = "in= is for connections of other machines: it needs transparent = \"*:PORT\" in";
        return Err(UsageError(anyhow!("--rule \"{rule}\": {text} {file}")).into());
    }
    let user = user(arguments.user.as_deref())?;
    let gateway = Gateway {
        port,
        user,
        gets_dns: can_copy_dns(&rules),
    };
    Ok(Ruleset {
        rules,
        gateway: Some(gateway),
    })
}

/// Fails if this machine has no user or group of a rule.
fn check_accounts(rule: &InterceptRule) -> anyhow::Result<()> {
    let is_number = |name: &&String| name.bytes().all(|byte| byte.is_ascii_digit());
    for user in rule.users().iter().filter(|name| !is_number(name)) {
        if User::from_name(user)?.is_none() {
            bail!("no user is named \"{user}\" (in the rule \"{rule}\")");
        }
    }
    for group in rule.groups().iter().filter(|name| !is_number(name)) {
        if Group::from_name(group)?.is_none() {
            bail!("no group is named \"{group}\" (in the rule \"{rule}\")");
        }
    }
    Ok(())
}

/// The number of the user that the near end runs as.
fn user(given: Option<&str>) -> anyhow::Result<u32> {
    if let Some(Ok(number)) = given.map(str::parse) {
        return Ok(number);
    }
    let name = given.unwrap_or(SERVICE_USER);
    match User::from_name(name)? {
        Some(user) => Ok(user.uid.as_raw()),
        None if given.is_some() => bail!("no user is named \"{name}\""),
        None => Err(UsageError(anyhow!(
            "no user is named \"{SERVICE_USER}\": give the near end's user with --user"
        ))
        .into()),
    }
}
