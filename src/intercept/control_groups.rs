//! The control groups of rules. The firewall keeps a group's number, not its path: a group that was made again is
//! another one.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::bail;
use refrain_gateway::intercept::{
    rule::InterceptRule,
    table::{Gateway, script},
};

/// Where control groups are mounted. nft looks for all paths from here.
const ROOT: &str = "/sys/fs/cgroup";

/// The groups that rules name, and their numbers at one moment.
#[derive(Debug)]
pub(crate) struct ControlGroups {
    /// Where those of version 2 are.
    root: PathBuf,
    /// No number: there is no such group.
    numbers: BTreeMap<String, Option<u64>>,
}

impl ControlGroups {
    pub(crate) fn of(rules: &[InterceptRule]) -> anyhow::Result<ControlGroups> {
        let paths: Vec<_> = rules
            .iter()
            .flat_map(InterceptRule::control_groups)
            .collect();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let root = match root(&mounts) {
            Some(root) => root,
            None if paths.is_empty() => PathBuf::new(),
            None => bail!(
                "no control groups of version 2 are mounted below {ROOT}: remove cgroup= from the rules"
            ),
        };
        let number = |path: &str| fs::metadata(root.join(path)).ok().map(|group| group.ino());
        let numbers = paths
            .into_iter()
            .map(|path| (path.clone(), number(path)))
            .collect();
        Ok(ControlGroups { root, numbers })
    }

    /// Whether the rules of an earlier moment lack a group that is there now. Those of a group that is gone match nothing.
    pub(super) fn has_news(&self, earlier: &ControlGroups) -> bool {
        let mut numbers = self.numbers.iter();
        numbers.any(|(path, number)| number.is_some() && earlier.numbers.get(path) != Some(number))
    }

    /// Those that are not there.
    pub(crate) fn missing(&self) -> impl Iterator<Item = &str> {
        let numbers = self.numbers.iter();
        numbers.filter_map(|(path, number)| number.is_none().then_some(path.as_str()))
    }

    pub(crate) fn script(&self, rules: &[InterceptRule], gateway: &Gateway) -> String {
        script(rules, gateway, &|path| {
            self.numbers.get(path).copied().flatten()?;
            let whole = self.root.join(path);
            let from_root = whole.strip_prefix(ROOT).ok()?.to_str()?;
            // What lies above the mount does not count.
            Some((path.split('/').count(), from_root.to_owned()))
        })
    }
}

/// Where control groups of version 2 are mounted, by `/proc/self/mounts`.
fn root(mounts: &str) -> Option<PathBuf> {
    let mut mounts = mounts.lines().map(|line| line.split(' '));
    mounts.find_map(|mut words| {
        let (_, folder, kind) = (words.next()?, words.next()?, words.next()?);
        let folder = Path::new(folder);
        (kind == "cgroup2" && folder.starts_with(ROOT)).then(|| folder.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_version_2_may_be_mounted_below_those_of_version_1() {
        let of = |mounts: &str| root(mounts).map(|root| root.display().to_string());
        let unified =
            "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(of(unified).as_deref(), Some("/sys/fs/cgroup/unified"));
        assert_eq!(
            of("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0").as_deref(),
            Some("/sys/fs/cgroup")
        );
        assert_eq!(of("cgroup2 /run/elsewhere cgroup2 rw 0 0\ncgroup\n"), None);
    }
}
