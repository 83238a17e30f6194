//! What the host says about its memory: how much is left, and whether it ended somebody for lack of it.
//!
//! The limits of control groups count, versions 1 and 2: inside a container or a batch job they are what ends processes.

use std::fs;
use std::path::{Path, PathBuf};

/// The host as `/proc` and `/sys` show it.
#[derive(Debug, Clone)]
pub(super) struct Host {
    root: PathBuf,
    /// Folders of this process's control group and those above it.
    groups: Vec<PathBuf>,
}

impl Host {
    /// The host that this process runs on.
    pub(super) fn this() -> Self {
        Self::at(Path::new("/"))
    }

    fn at(root: &Path) -> Self {
        let mounted = root.join("sys/fs/cgroup");
        let membership = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        let mut groups = Vec::new();
        for line in membership.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
                continue;
            };
            let base = match controllers {
                "" if mounted.join("unified").is_dir() => mounted.join("unified"),
                "" => mounted.clone(),
                _ if controllers.split(',').any(|name| name == "memory") => mounted.join("memory"),
                _ => continue,
            };
            let own = base.join(path.trim_start_matches('/'));
            groups.extend(own.ancestors().take_while(|group| group.starts_with(&base)).map(Path::to_owned));
        }
        Self { root: root.to_owned(), groups }
    }

    /// Bytes that can still be used before something has to go; none where nothing says so.
    pub(super) fn memory_available(&self) -> Option<u64> {
        let meminfo = fs::read_to_string(self.root.join("proc/meminfo")).ok();
        let free = meminfo.as_deref().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
        });
        let groups = self.groups.iter().filter_map(|group| {
            room(group, ["memory.max", "memory.current", "inactive_file"])
                .or_else(|| room(group, ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"]))
        });
        groups.chain(free).min()
    }

    /// How many processes the host ended for lack of memory so far, here or in any group that this process is in.
    pub(super) fn processes_ended_for_memory(&self) -> u64 {
        let groups = self.groups.iter().flat_map(|group| {
            [counter(&group.join("memory.events"), "oom_kill"), counter(&group.join("memory.oom_control"), "oom_kill")]
        });
        let host = counter(&self.root.join("proc/vmstat"), "oom_kill");
        groups.chain([host]).flatten().sum()
    }
}

/// What a control group may still take: its limit less its use, where cached files, which are dropped first, do not count.
fn room(group: &Path, [limit, used, cached]: [&str; 3]) -> Option<u64> {
    let limit = number(&group.join(limit))?;
    let used = number(&group.join(used))?;
    let cached = counter(&group.join("memory.stat"), cached).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(cached)))
}

/// The whole content of a file as a number; `max` is none.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number behind a name in a file of `name number` lines.
fn counter(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let host = Host::at(folder.path());
        (folder, host)
    }

    #[test]
    fn without_limits_the_machine_decides() {
        let (_folder, host) = host(&[("proc/meminfo", "MemTotal: 100 kB\nMemAvailable:    50 kB\n")]);
        assert_eq!(host.memory_available(), Some(51_200));
        assert_eq!(host.processes_ended_for_memory(), 0);
    }

    #[test]
    fn the_tightest_group_decides_version_2() {
        let (_folder, host) = host(&[
            ("proc/meminfo", "MemAvailable: 1000000 kB\n"),
            ("proc/vmstat", "nr_free 1\noom_kill 2\n"),
            ("proc/self/cgroup", "0::/job/step\n"),
            ("sys/fs/cgroup/job/memory.max", "5000\n"),
            ("sys/fs/cgroup/job/memory.current", "3000\n"),
            ("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 500\n"),
            ("sys/fs/cgroup/job/step/memory.max", "max\n"),
            ("sys/fs/cgroup/job/step/memory.current", "10\n"),
            ("sys/fs/cgroup/job/step/memory.events", "low 0\noom 1\noom_kill 1\n"),
        ]);
        assert_eq!(host.memory_available(), Some(2500));
        assert_eq!(host.processes_ended_for_memory(), 3);
    }

    #[test]
    fn the_tightest_group_decides_version_1() {
        let (_folder, host) = host(&[
            ("proc/meminfo", "MemAvailable: 1000000 kB\n"),
            ("proc/self/cgroup", "4:cpu,cpuacct:/x\n3:memory:/job\n0::/\n"),
            ("sys/fs/cgroup/unified/cgroup.procs", ""),
            ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9000\n"),
            ("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "4000\n"),
            ("sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n"),
        ]);
        assert_eq!(host.memory_available(), Some(5000));
        assert_eq!(host.processes_ended_for_memory(), 4);
    }

    #[test]
    fn this_host_says_something() {
        assert!(Host::this().memory_available().is_some_and(|bytes| bytes > 0));
    }
}
