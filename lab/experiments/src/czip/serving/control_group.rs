//! A control group for a server: what bounds its memory, page cache included, and how fast it reads the
//! disk. Version 1 or 2, whichever has what is needed; either needs root.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

/// What a group may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Limits {
    /// Of its processes and of the pages of files that they read.
    pub memory_bytes: u64,
    /// Read of the disk in a second.
    pub disk_bytes_a_s: u64,
}

/// More than any machine has, for both. A limit it is: without one version 1 counts no reads.
pub(super) const UNLIMITED: Limits = Limits {
    memory_bytes: 1 << 50,
    disk_bytes_a_s: 1 << 50,
};

/// What a group's processes used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Used {
    pub cpu_s: f64,
    pub disk_bytes: u64,
}

/// Where the kernel shows control groups.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mounts {
    /// A hierarchy a controller.
    One {
        memory: PathBuf,
        block: PathBuf,
        cpu: PathBuf,
    },
    Two(PathBuf),
}

impl Mounts {
    /// Of the lines of `/proc/mounts`; `controllers` says which ones a hierarchy of version 2 has.
    fn parse(lines: &str, controllers: impl Fn(&Path) -> String) -> Option<Self> {
        let mounts = || {
            lines.lines().filter_map(|line| {
                let mut fields = line.split(' ').skip(1);
                let place = fields.next().map(PathBuf::from)?;
                Some((place, fields.next()?, fields.next()?))
            })
        };
        let one = |controller: &str| {
            let mut mounts = mounts();
            let has = |options: &str| options.split(',').any(|option| option == controller);
            let found = mounts.find(|(_, kind, options)| *kind == "cgroup" && has(options));
            found.map(|(place, ..)| place)
        };
        if let (Some(memory), Some(block), Some(cpu)) =
            (one("memory"), one("blkio"), one("cpuacct"))
        {
            return Some(Self::One { memory, block, cpu });
        }
        let (place, ..) = mounts().find(|(_, kind, _)| *kind == "cgroup2")?;
        let has = controllers(&place);
        let has = |controller| has.split_whitespace().any(|one| one == controller);
        (has("memory") && has("io") && has("cpu")).then_some(Self::Two(place))
    }

    fn find() -> anyhow::Result<Self> {
        let controllers =
            |place: &Path| fs::read_to_string(place.join("cgroup.controllers")).unwrap_or_default();
        let lines = fs::read_to_string("/proc/mounts")?;
        Self::parse(&lines, controllers).context(
            "no control groups for memory, block devices and CPUs (mount them, version 1 or 2)",
        )
    }
}

/// A group, until dropped.
pub(super) struct ControlGroup {
    mounts: Mounts,
    name: String,
    /// Major and minor number of the disk.
    disk: String,
}

impl ControlGroup {
    /// A group within `limits`, the second of which is for the disk that holds `files`.
    pub(super) fn new(limits: Limits, files: &Path) -> anyhow::Result<Self> {
        let group = Self {
            mounts: Mounts::find()?,
            name: format!("refrain-experiments-{}", std::process::id()),
            disk: disk_of(files)?,
        };
        let Limits {
            memory_bytes: memory,
            disk_bytes_a_s: disk,
        } = limits;
        if let Mounts::Two(place) = &group.mounts {
            write(&place.join("cgroup.subtree_control"), "+memory +io +cpu")?;
        }
        for folder in group.folders() {
            // One that a killed run left behind is as good.
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }
        match &group.mounts {
            Mounts::One { .. } => {
                let bytes = group.file("memory.limit_in_bytes");
                write(&bytes, &memory.to_string())?;
                let rate = group.file("blkio.throttle.read_bps_device");
                write(&rate, &format!("{} {disk}", group.disk))?;
            }
            Mounts::Two(_) => {
                write(&group.file("memory.max"), &memory.to_string())?;
                let rate = format!("{} rbps={disk}", group.disk);
                write(&group.file("io.max"), &rate)?;
            }
        }
        Ok(group)
    }

    /// Of which version it is.
    pub(super) fn version(&self) -> u8 {
        match self.mounts {
            Mounts::One { .. } => 1,
            Mounts::Two(_) => 2,
        }
    }

    fn folders(&self) -> Vec<PathBuf> {
        let mut folders = match &self.mounts {
            Mounts::One { memory, block, cpu } => vec![memory, block, cpu],
            Mounts::Two(place) => vec![place],
        };
        folders.dedup();
        folders
            .iter()
            .map(|folder| folder.join(&self.name))
            .collect()
    }

    /// A file of the group, by the controller that its name begins with.
    fn file(&self, name: &str) -> PathBuf {
        let place = match &self.mounts {
            Mounts::One { memory, .. } if name.starts_with("memory") => memory,
            Mounts::One { block, .. } if name.starts_with("blkio") => block,
            Mounts::One { cpu, .. } => cpu,
            Mounts::Two(place) => place,
        };
        place.join(&self.name).join(name)
    }

    /// A command in the group from its first instruction on.
    pub(super) fn command(&self, program: &Path) -> Command {
        let enter: String = self
            .folders()
            .iter()
            .map(|folder| format!("echo $$ >'{}/cgroup.procs'; ", folder.display()))
            .collect();
        let mut command = Command::new("sh");
        let script = format!("set -e; {enter}exec \"$0\" \"$@\"");
        command.args(["-c", &script]).arg(program);
        command
    }

    /// What its processes used so far, those that have ended too.
    pub(super) fn used(&self) -> anyhow::Result<Used> {
        let read = |name: &str| {
            let file = self.file(name);
            fs::read_to_string(&file).with_context(|| file.display().to_string())
        };
        let used = match &self.mounts {
            Mounts::One { .. } => used_in_one(
                &read("cpuacct.usage")?,
                &read("blkio.throttle.io_service_bytes")?,
                &self.disk,
            ),
            Mounts::Two(_) => used_in_two(&read("cpu.stat")?, &read("io.stat")?, &self.disk),
        };
        used.context("unknown form of the control group's counters")
    }

    /// The most memory that its processes had, each at its own peak, without the pages of files.
    pub(super) fn peak_bytes(&self) -> anyhow::Result<u64> {
        let mut bytes = 0;
        for process in fs::read_to_string(self.file("cgroup.procs"))?.lines() {
            let status = fs::read_to_string(format!("/proc/{process}/status"))?;
            let mut lines = status.lines();
            let peak = lines.find_map(|line| line.strip_prefix("VmHWM:"));
            let kib = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
            let kib: u64 = kib.context("no peak memory")?.parse()?;
            bytes += kib << 10;
        }
        Ok(bytes)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        for folder in self.folders() {
            // Its processes were killed, and are counted until they are gone.
            for _ in 0..100 {
                if fs::remove_dir(&folder).is_ok() {
                    break;
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {text} to {}", file.display()))
}

/// `major:minor` of the whole disk that a file lies on: partitions have no limits.
fn disk_of(file: &Path) -> anyhow::Result<String> {
    let device = file.metadata()?.dev();
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    let shown = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    if !shown.exists() {
        bail!(
            "\"{}\" is on device {major}:{minor}, which is not a disk (use a directory on a disk)",
            file.display()
        );
    }
    let disk = match shown.join("partition").exists() {
        true => shown.canonicalize()?.join(".."),
        false => shown,
    };
    let disk = fs::read_to_string(disk.join("dev"))?.trim().to_owned();
    ensure!(!disk.is_empty(), "unknown disk");
    Ok(disk)
}

fn used_in_one(cpu_ns: &str, blocks: &str, disk: &str) -> Option<Used> {
    let reads = format!("{disk} Read ");
    let bytes = blocks.lines().find_map(|line| line.strip_prefix(&reads));
    Some(Used {
        cpu_s: cpu_ns.trim().parse::<f64>().ok()? / 1e9,
        // There is no line before the first read.
        disk_bytes: bytes.map_or(Some(0), |bytes| bytes.parse().ok())?,
    })
}

fn used_in_two(cpu: &str, blocks: &str, disk: &str) -> Option<Used> {
    let mut lines = cpu.lines();
    let usage = lines.find_map(|line| line.strip_prefix("usage_usec "))?;
    let of_disk = format!("{disk} ");
    let mut lines = blocks.lines();
    let counts = lines.find_map(|line| line.strip_prefix(&of_disk));
    let bytes = counts.map_or(Some("0"), |counts| {
        let mut counts = counts.split(' ');
        counts.find_map(|count| count.strip_prefix("rbytes="))
    });
    Some(Used {
        cpu_s: usage.parse::<f64>().ok()? / 1e6,
        disk_bytes: bytes?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_either_version_are_found() {
        let one = "cgroup /c/memory cgroup rw,relatime,memory 0 0\n\
                   cgroup /c/blkio cgroup rw,blkio 0 0\n\
                   cgroup /c/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n\
                   cgroup2 /c/unified cgroup2 rw,relatime 0 0\n";
        let none = |_: &Path| String::new();
        let expected = Mounts::One {
            memory: "/c/memory".into(),
            block: "/c/blkio".into(),
            cpu: "/c/cpu,cpuacct".into(),
        };
        assert_eq!(Mounts::parse(one, none), Some(expected));
        let two = "proc /proc proc rw 0 0\ncgroup2 /c cgroup2 rw 0 0\n";
        assert_eq!(Mounts::parse(two, none), None);
        let all = |_: &Path| "cpuset cpu io memory pids\n".to_owned();
        assert_eq!(Mounts::parse(two, all), Some(Mounts::Two("/c".into())));
    }

    #[test]
    fn counts_of_either_version_are_read() {
        let blocks = "8:0 Read 7\n254:0 Read 943718400\n254:0 Write 3\nTotal 5\n";
        let expected = Some(Used {
            cpu_s: 1.5,
            disk_bytes: 943_718_400,
        });
        assert_eq!(used_in_one("1500000000\n", blocks, "254:0"), expected);
        let blocks = "8:0 rbytes=7 wbytes=1\n254:0 wbytes=3 rbytes=943718400 rios=4\n";
        let cpu = "usage_usec 1500000\nuser_usec 1000000\n";
        assert_eq!(used_in_two(cpu, blocks, "254:0"), expected);
        assert_eq!(
            used_in_one("0\n", "Total 0\n", "254:0"),
            Some(Used::default())
        );
        assert_eq!(used_in_two("", "", "254:0"), None);
    }
}
