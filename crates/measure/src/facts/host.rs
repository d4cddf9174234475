//! Host: the machine and what it runs inside.
//!
//! Evidence is weighed from strong to weak: a name that only one hypervisor writes into the firmware
//! tables, then the paravirtual clock the kernel found, then names that several share, then the bare
//! processor flag. An x86 processor without that flag ends the search, since cloud vendors write the same
//! firmware names into their metal machines. `/.dockerenv` counts only in a separate namespace: virtual
//! machines made from container images carry the file too.
//!
//! Failure:     what cannot be read is `None`; without `/proc` and `/sys` (macOS) most of it is.
//! Source:      the evidence and the names follow systemd-detect-virt, shortened.

use std::fs;
use std::path::Path;
use std::thread;

use super::Host;

const PRODUCT: &str = "sys/class/dmi/id/product_name";
const VENDOR: &str = "sys/class/dmi/id/sys_vendor";
const ACPI: &str = "sys/firmware/acpi/tables/DSDT";
const CLOCKS: &str = "sys/devices/system/clocksource/clocksource0/available_clocksource";
const TREE: &str = "proc/device-tree/hypervisor/compatible";
const CGROUP: &str = "proc/self/cgroup";

/// A file, a mark in it, and the name that both indicate.
type Evidence<T> = (&'static str, &'static str, T);

/// Of hypervisors, the first that applies; `None` is bare metal.
const HYPERVISORS: [Evidence<Option<&str>>; 22] = [
    // Xen's first domain has the real hardware.
    ("proc/xen/capabilities", "control_d", None),
    ("sys/hypervisor/type", "xen", Some("xen")),
    (PRODUCT, ".metal", None),
    (ACPI, "FIRECK", Some("firecracker")),
    (ACPI, "CLOUDH", Some("cloud-hypervisor")),
    (VENDOR, "VMware", Some("vmware")),
    (VENDOR, "innotek", Some("virtualbox")),
    (VENDOR, "Xen", Some("xen")),
    (VENDOR, "Parallels", Some("parallels")),
    (PRODUCT, "BHYVE", Some("bhyve")),
    (PRODUCT, "Bochs", Some("bochs")),
    (PRODUCT, "Apple Virtualization", Some("apple")),
    (CLOCKS, "kvm-clock", Some("kvm")),
    (CLOCKS, "xen", Some("xen")),
    (CLOCKS, "hyperv_clocksource", Some("hyperv")),
    (TREE, "kvm", Some("kvm")),
    (TREE, "xen", Some("xen")),
    (TREE, "vmware", Some("vmware")),
    (PRODUCT, "KVM", Some("kvm")),
    (PRODUCT, "Virtual Machine", Some("hyperv")),
    (VENDOR, "Amazon EC2", Some("kvm")),
    (VENDOR, "QEMU", Some("qemu")),
];

/// Of container runtimes, the first that applies.
const CONTAINERS: [Evidence<&str>; 6] = [
    ("run/.containerenv", "", "podman"),
    (CGROUP, "kubepods", "kubernetes"),
    (CGROUP, "libpod", "podman"),
    (CGROUP, "docker", "docker"),
    (CGROUP, "lxc", "lxc"),
    (CGROUP, "machine.slice/machine-", "systemd-nspawn"),
];

/// The target of `/proc/self/ns/pid` in the machine's first namespace (the kernel's `proc_ns.h`).
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

impl Host {
    /// Reads the facts about the machine of this process; never fails, leaves out what cannot be found.
    #[must_use]
    pub fn read() -> Host {
        let names = rustix::system::uname();
        let text = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
        let root = Path::new("/");
        let cpuinfo = read(root, "proc/cpuinfo").unwrap_or_default();
        Host {
            name: text(names.nodename()),
            kernel: format!("{} {}", text(names.sysname()), text(names.release())),
            cpu: cpu_model(&cpuinfo),
            cpus: thread::available_parallelism().map_or(1, Into::into),
            memory_bytes: meminfo("MemTotal:"),
            virtualisation: virtualisation(root, &cpuinfo),
            container: container(root, std::env::var("container").ok()),
            root: rustix::process::geteuid().is_root(),
        }
    }
}

/// A file's text; `None` when it is absent or unreadable. `root`: `/`, or a directory of a test.
fn read(root: &Path, path: &str) -> Option<String> {
    let bytes = fs::read(root.join(path)).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The name that the first matching `evidence` indicates.
fn first<T: Copy>(root: &Path, evidence: &[Evidence<T>]) -> Option<T> {
    let applies = |path, mark| read(root, path).is_some_and(|text| text.contains(mark));
    evidence.iter().find(|&&(path, mark, _)| applies(path, mark)).map(|&(_, _, name)| name)
}

/// The value of the first `key : value` line with this key.
fn cpuinfo_value<'a>(cpuinfo: &'a str, key: &str) -> Option<&'a str> {
    cpuinfo.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let value = value.trim();
        (name.trim() == key && !value.is_empty()).then_some(value)
    })
}

/// x86 says `model name`, POWER `cpu`; 64-bit ARM names no model.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    let named = cpuinfo_value(cpuinfo, "model name").or_else(|| cpuinfo_value(cpuinfo, "cpu"))?;
    Some(named.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Memory that is available to programs, in bytes.
pub fn available_bytes() -> Option<u64> {
    meminfo("MemAvailable:")
}

fn meminfo(name: &str) -> Option<u64> {
    in_meminfo(name, &read(Path::new("/"), "proc/meminfo")?)
}

fn in_meminfo(name: &str, meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn virtualisation(root: &Path, cpuinfo: &str) -> Option<String> {
    let flags = cpuinfo_value(cpuinfo, "flags");
    let flagged = flags.map(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    match (flagged, first(root, &HYPERVISORS)) {
        (Some(false), _) => None,
        (_, Some(name)) => name.map(str::to_owned),
        (Some(true), None) => Some("unknown hypervisor".to_owned()),
        (None, None) => None,
    }
}

/// The container runtime; `environment` is the variable `container` that runtimes set.
fn container(root: &Path, environment: Option<String>) -> Option<String> {
    let handed = environment.or_else(|| read(root, "run/systemd/container"));
    let handed = handed.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    let namespace = fs::read_link(root.join("proc/self/ns/pid"));
    let is_first = namespace.is_ok_and(|link| link == Path::new(FIRST_NAMESPACE));
    let docker = root.join(".dockerenv").exists() && !is_first;
    handed
        .or_else(|| first(root, &CONTAINERS).map(str::to_owned))
        .or_else(|| docker.then(|| "docker".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    const GUEST: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD  EPYC 7763\nflags\t\t: fpu vme hypervisor lm\n";
    const METAL: &str = "model name\t: Intel(R) Xeon(R)\nflags\t\t: fpu vme lm\n";
    const ARM: &str = "processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\n";

    fn machine(texts: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in texts {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn hypervisor(texts: &[(&str, &str)], cpuinfo: &str) -> Option<String> {
        virtualisation(machine(texts).path(), cpuinfo)
    }

    fn dmi(product: &str, vendor: &str, cpuinfo: &str) -> Option<String> {
        hypervisor(&[(PRODUCT, product), (VENDOR, vendor)], cpuinfo)
    }

    #[test]
    fn processor_and_memory_are_read() {
        assert_eq!(cpu_model(GUEST).as_deref(), Some("AMD EPYC 7763"));
        assert_eq!(cpu_model("cpu\t\t: POWER9, altivec\n").as_deref(), Some("POWER9, altivec"));
        assert_eq!(cpu_model(ARM), None);
        assert_eq!(
            in_meminfo("MemTotal:", "MemTotal:       24669068 kB\nMemFree: 1 kB\n"),
            Some(24_669_068 * 1024)
        );
        assert_eq!(in_meminfo("MemTotal:", ""), None);
        assert_eq!(
            in_meminfo("MemAvailable:", "MemTotal: 9 kB\nMemAvailable:  7 kB\n"),
            Some(7168)
        );
    }

    #[test]
    fn firmware_names_identify_the_hypervisor() {
        assert_eq!(dmi("KVM", "Red Hat", GUEST).as_deref(), Some("kvm"));
        assert_eq!(dmi("Standard PC (Q35 + ICH9, 2009)", "QEMU", GUEST).as_deref(), Some("qemu"));
        assert_eq!(
            dmi("VMware Virtual Platform", "VMware, Inc.", GUEST).as_deref(),
            Some("vmware")
        );
        assert_eq!(dmi("VirtualBox", "innotek GmbH", GUEST).as_deref(), Some("virtualbox"));
        assert_eq!(
            dmi("Virtual Machine", "Microsoft Corporation", GUEST).as_deref(),
            Some("hyperv")
        );
        assert_eq!(dmi("HVM domU", "Xen", GUEST).as_deref(), Some("xen"));
        assert_eq!(dmi("KVM Virtual Machine", "QEMU", ARM).as_deref(), Some("kvm"));
        assert_eq!(dmi("c7g.large", "Amazon EC2", ARM).as_deref(), Some("kvm"));
    }

    #[test]
    fn bare_metal_has_no_hypervisor_whatever_its_firmware_says() {
        assert_eq!(dmi("Google Compute Engine", "Google", METAL), None);
        assert_eq!(dmi("Google Compute Engine", "Google", ARM), None);
        assert_eq!(dmi("Surface Laptop 5", "Microsoft Corporation", METAL), None);
        assert_eq!(dmi("c7g.metal", "Amazon EC2", ARM), None);
        assert_eq!(hypervisor(&[], ""), None);
    }

    #[test]
    fn a_flag_alone_is_an_unknown_hypervisor() {
        assert_eq!(hypervisor(&[], GUEST).as_deref(), Some("unknown hypervisor"));
    }

    #[test]
    fn firecracker_is_known_by_its_acpi_table_and_otherwise_by_its_clock() {
        let table = "DSDTS\u{f}\0\0\u{2}wFIRECKFCVMDSDT";
        let both = [(ACPI, table), (CLOCKS, "tsc kvm-clock")];
        assert_eq!(hypervisor(&both, GUEST).as_deref(), Some("firecracker"));
        assert_eq!(hypervisor(&both[1..], GUEST).as_deref(), Some("kvm"));
    }

    #[test]
    fn clocks_and_device_trees_identify_the_hypervisor() {
        let azure = [(CLOCKS, "hyperv_clocksource_tsc_page acpi_pm")];
        assert_eq!(hypervisor(&azure, GUEST).as_deref(), Some("hyperv"));
        let qemu = [(VENDOR, "QEMU"), (CLOCKS, "kvm-clock tsc")];
        assert_eq!(hypervisor(&qemu, GUEST).as_deref(), Some("kvm"));
        let tree = [(TREE, "linux,kvm\0")];
        assert_eq!(hypervisor(&tree, ARM).as_deref(), Some("kvm"));
    }

    #[test]
    fn a_xen_guest_is_virtual_and_its_first_domain_is_not() {
        let texts = [("sys/hypervisor/type", "xen\n"), ("proc/xen/capabilities", "control_d\n")];
        assert_eq!(hypervisor(&texts[..1], GUEST).as_deref(), Some("xen"));
        assert_eq!(hypervisor(&texts, GUEST), None);
    }

    #[test]
    fn containers_are_known_by_what_their_runtimes_leave() {
        let container = |texts: &[(&str, &str)], environment: Option<&str>| {
            container(machine(texts).path(), environment.map(str::to_owned))
        };
        let pods = "0::/kubepods.slice/kubepods-pod1.slice/docker-ab.scope\n";
        assert_eq!(container(&[], None), None);
        assert_eq!(container(&[], Some("")), None);
        assert_eq!(container(&[], Some("lxc")).as_deref(), Some("lxc"));
        assert_eq!(container(&[("run/.containerenv", "")], None).as_deref(), Some("podman"));
        assert_eq!(container(&[(CGROUP, pods)], None).as_deref(), Some("kubernetes"));
        let docker = [(CGROUP, "4:memory:/docker/0f3a\n")];
        assert_eq!(container(&docker, None).as_deref(), Some("docker"));
        assert_eq!(container(&[(CGROUP, "0::/init.scope\n")], None), None);
        assert_eq!(container(&[(".dockerenv", "")], None).as_deref(), Some("docker"));
    }

    #[test]
    fn a_machine_made_from_an_image_is_no_container() {
        let machine = machine(&[(".dockerenv", "")]);
        let links = machine.path().join("proc/self/ns");
        fs::create_dir_all(&links).unwrap();
        symlink(FIRST_NAMESPACE, links.join("pid")).unwrap();
        assert_eq!(container(machine.path(), None), None);
        fs::remove_file(links.join("pid")).unwrap();
        symlink("pid:[4026532577]", links.join("pid")).unwrap();
        assert_eq!(container(machine.path(), None).as_deref(), Some("docker"));
    }

    #[test]
    fn on_this_machine_the_kernel_has_a_name_and_there_is_a_processor() {
        let host = Host::read();
        assert!(host.kernel.contains(' ') && !host.kernel.starts_with(' '), "{host:?}");
        assert!(host.cpus >= 1);
        if cfg!(target_os = "linux") {
            assert!(host.kernel.starts_with("Linux "));
            assert!(host.memory_bytes.is_some_and(|bytes| bytes > 1 << 20));
        }
    }
}
