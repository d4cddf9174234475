//! Host: the machine and what it runs inside.
//!
//! Evidence is weighed from strong to weak: a name the hypervisor put into the firmware tables,
//! then the paravirtual clock the kernel found, then the bare processor flag. An x86 processor
//! without that flag ends the search, since cloud vendors write the same firmware names
//! into their metal machines. `/.dockerenv` counts only in a namespace of its own: virtual machines
//! made from container images carry the file too.
//!
//! Failure:     what cannot be read is `None`; without `/proc` and `/sys` (macOS) most of it is.
//! Source:      the order and the names follow systemd-detect-virt, shortened.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use super::Host;

/// Names in DMI's product and vendor fields, with the hypervisor each stands for.
const DMI_NAMES: [(&str, &str); 17] = [
    ("Firecracker", "firecracker"),
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("KubeVirt", "kvm"),
    ("Amazon EC2", "kvm"),
    ("DigitalOcean", "kvm"),
    ("vServer", "kvm"),
    ("QEMU", "qemu"),
    ("VMware", "vmware"),
    ("VMW", "vmware"),
    ("VirtualBox", "virtualbox"),
    ("innotek GmbH", "virtualbox"),
    ("Xen", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Apple Virtualization", "apple"),
];

/// Marks in a process's cgroup path, with the runtime each stands for.
const CGROUP_MARKS: [(&str, &str); 7] = [
    ("kubepods", "kubernetes"),
    ("libpod", "podman"),
    ("/docker/", "docker"),
    ("docker-", "docker"),
    ("/lxc/", "lxc"),
    ("lxc.payload", "lxc"),
    ("machine.slice/machine-", "systemd-nspawn"),
];

/// The first namespaces of a machine have these fixed numbers (the kernel's `proc_ns.h`).
const FIRST_NAMESPACES: [(&str, &str); 4] = [
    ("cgroup", "cgroup:[4026531835]"),
    ("pid", "pid:[4026531836]"),
    ("uts", "uts:[4026531838]"),
    ("ipc", "ipc:[4026531839]"),
];

impl Host {
    /// Looks at the machine this process runs on; never fails, leaves out what cannot be found.
    #[must_use]
    pub fn read() -> Host {
        let names = rustix::system::uname();
        let text = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
        let files = Files::at("/");
        let cpuinfo = files.text("proc/cpuinfo").unwrap_or_default();
        let meminfo = files.text("proc/meminfo").unwrap_or_default();
        Host {
            name: text(names.nodename()),
            kernel: format!("{} {}", text(names.sysname()), text(names.release())),
            cpu: cpu_model(&cpuinfo),
            cpus: thread::available_parallelism().map_or(1, Into::into),
            memory_bytes: memory_bytes(&meminfo),
            virtualisation: virtualisation(&files, &cpuinfo),
            container: container(&files, std::env::var("container").ok().as_deref()),
            root: rustix::process::geteuid().is_root(),
        }
    }
}

/// The files that tell about the machine; tests stand them up in a directory.
struct Files {
    root: PathBuf,
}

impl Files {
    fn at(root: impl AsRef<Path>) -> Files {
        Files { root: root.as_ref().to_path_buf() }
    }

    /// A file's text, trimmed; `None` when it is absent, unreadable or empty.
    fn text(&self, path: &str) -> Option<String> {
        let bytes = fs::read(self.root.join(path)).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }
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

/// Memory that programs may still take, in bytes.
pub(crate) fn available_bytes() -> Option<u64> {
    in_meminfo("MemAvailable:", &Files::at("/").text("proc/meminfo")?)
}

fn memory_bytes(meminfo: &str) -> Option<u64> {
    in_meminfo("MemTotal:", meminfo)
}

fn in_meminfo(name: &str, meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn virtualisation(files: &Files, cpuinfo: &str) -> Option<String> {
    if let Some(kind) = files.text("sys/hypervisor/type") {
        // Xen's first domain has the real hardware and only shares the machine with the hypervisor.
        let controls = files.text("proc/xen/capabilities");
        let first_domain = controls.is_some_and(|text| text.contains("control_d"));
        return (!first_domain).then_some(kind);
    }
    let flags = cpuinfo_value(cpuinfo, "flags");
    let flagged = flags.map(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    if flagged == Some(false) {
        return None;
    }
    firmware_name(files, flagged.is_some())
        .or_else(|| clock_name(files))
        .or_else(|| device_tree_name(files))
        .map(str::to_owned)
        .or_else(|| flagged.map(|_| "unknown hypervisor".to_owned()))
}

/// The hypervisor's name in ACPI (readable by root only) or in DMI; `flagged` when the processor
/// says that there is one.
fn firmware_name(files: &Files, flagged: bool) -> Option<&'static str> {
    // Bytes 10 to 15 of an ACPI table name its maker.
    let table = fs::read(files.root.join("sys/firmware/acpi/tables/DSDT")).unwrap_or_default();
    match table.get(10..16) {
        Some(b"FIRECK") => return Some("firecracker"),
        Some(b"CLOUDH") => return Some("cloud-hypervisor"),
        _ => {}
    }
    let dmi = |field| files.text(&format!("sys/class/dmi/id/{field}"));
    let product = dmi("product_name").unwrap_or_default();
    let vendor = dmi("sys_vendor").unwrap_or_default();
    // Three makers sell metal too: Amazon names it, Google does not, Microsoft's are laptops.
    if product.ends_with(".metal") || product.contains(".metal-") {
        return None;
    }
    if product == "Google Compute Engine" {
        return flagged.then_some("kvm");
    }
    if product == "Virtual Machine" && vendor.starts_with("Microsoft") {
        return Some("hyperv");
    }
    let (_, name) =
        DMI_NAMES.iter().find(|(mark, _)| product.starts_with(mark) || vendor.starts_with(mark))?;
    // QEMU names itself alike with and without KVM; the clock tells them apart.
    match (*name, clock_name(files)) {
        ("qemu", Some("kvm")) => Some("kvm"),
        (name, _) => Some(name),
    }
}

/// The paravirtual clock that the kernel found.
fn clock_name(files: &Files) -> Option<&'static str> {
    let clocks = files.text("sys/devices/system/clocksource/clocksource0/available_clocksource")?;
    clocks.split_whitespace().find_map(|clock| match clock {
        "kvm-clock" => Some("kvm"),
        "xen" => Some("xen"),
        _ if clock.starts_with("hyperv_clocksource") => Some("hyperv"),
        _ => None,
    })
}

/// ARM and RISC-V guests without ACPI are told by the device tree.
fn device_tree_name(files: &Files) -> Option<&'static str> {
    let compatible = files.text("proc/device-tree/hypervisor/compatible")?;
    let names = [("kvm", "kvm"), ("xen", "xen"), ("vmware", "vmware")];
    let known = names.iter().find(|(mark, _)| compatible.contains(mark))?;
    Some(known.1)
}

/// The container runtime; `environment` is the variable `container` that runtimes hand in.
fn container(files: &Files, environment: Option<&str>) -> Option<String> {
    let handed = environment.filter(|name| !name.is_empty()).map(str::to_owned);
    handed
        .or_else(|| files.text("run/systemd/container"))
        .or_else(|| files.exists("run/.containerenv").then(|| "podman".to_owned()))
        .or_else(|| cgroup_name(files).map(str::to_owned))
        .or_else(|| {
            let docker = files.exists(".dockerenv") && !in_first_namespaces(files);
            docker.then(|| "docker".to_owned())
        })
}

fn cgroup_name(files: &Files) -> Option<&'static str> {
    let paths = ["proc/self/cgroup", "proc/1/cgroup"].map(|path| files.text(path));
    let paths = paths.map(Option::unwrap_or_default).concat();
    let (_, name) = CGROUP_MARKS.iter().find(|(mark, _)| paths.contains(mark))?;
    Some(name)
}

fn in_first_namespaces(files: &Files) -> bool {
    FIRST_NAMESPACES.iter().all(|(kind, first)| {
        let link = fs::read_link(files.root.join("proc/self/ns").join(kind));
        link.is_ok_and(|link| link == Path::new(first))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    const GUEST: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD  EPYC 7763\nflags\t\t: fpu vme hypervisor lm\n";
    const METAL: &str = "model name\t: Intel(R) Xeon(R)\nflags\t\t: fpu vme lm\n";
    const ARM: &str = "processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\n";
    const CLOCKS: &str = "sys/devices/system/clocksource/clocksource0/available_clocksource";

    fn machine(texts: &[(&str, &str)]) -> (TempDir, Files) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in texts {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let files = Files::at(root.path());
        (root, files)
    }

    fn hypervisor(texts: &[(&str, &str)], cpuinfo: &str) -> Option<String> {
        let (_root, files) = machine(texts);
        virtualisation(&files, cpuinfo)
    }

    fn dmi(product: &str, vendor: &str, cpuinfo: &str) -> Option<String> {
        let texts =
            [("sys/class/dmi/id/product_name", product), ("sys/class/dmi/id/sys_vendor", vendor)];
        hypervisor(&texts, cpuinfo)
    }

    #[test]
    fn processor_and_memory_are_read() {
        assert_eq!(cpu_model(GUEST).as_deref(), Some("AMD EPYC 7763"));
        assert_eq!(cpu_model("cpu\t\t: POWER9, altivec\n").as_deref(), Some("POWER9, altivec"));
        assert_eq!(cpu_model(ARM), None);
        assert_eq!(
            memory_bytes("MemTotal:       24669068 kB\nMemFree: 1 kB\n"),
            Some(24_669_068 * 1024)
        );
        assert_eq!(memory_bytes(""), None);
        assert_eq!(
            in_meminfo("MemAvailable:", "MemTotal: 9 kB\nMemAvailable:  7 kB\n"),
            Some(7168)
        );
    }

    #[test]
    fn firmware_names_tell_the_hypervisor() {
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
        assert_eq!(dmi("Google Compute Engine", "Google", GUEST).as_deref(), Some("kvm"));
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
    fn firecracker_is_told_by_its_acpi_table_and_otherwise_by_its_clock() {
        let table = "DSDTS\u{f}\0\0\u{2}wFIRECKFCVMDSDT";
        let path = "sys/firmware/acpi/tables/DSDT";
        let both = [(path, table), (CLOCKS, "tsc kvm-clock")];
        assert_eq!(hypervisor(&both, GUEST).as_deref(), Some("firecracker"));
        assert_eq!(hypervisor(&both[1..], GUEST).as_deref(), Some("kvm"));
    }

    #[test]
    fn clocks_and_device_trees_tell_the_hypervisor() {
        let azure = [(CLOCKS, "hyperv_clocksource_tsc_page acpi_pm")];
        assert_eq!(hypervisor(&azure, GUEST).as_deref(), Some("hyperv"));
        let qemu = [("sys/class/dmi/id/sys_vendor", "QEMU"), (CLOCKS, "kvm-clock tsc")];
        assert_eq!(hypervisor(&qemu, GUEST).as_deref(), Some("kvm"));
        let tree = [("proc/device-tree/hypervisor/compatible", "linux,kvm\0")];
        assert_eq!(hypervisor(&tree, ARM).as_deref(), Some("kvm"));
    }

    #[test]
    fn a_xen_guest_is_virtual_and_its_first_domain_is_not() {
        let texts = [("sys/hypervisor/type", "xen\n"), ("proc/xen/capabilities", "control_d\n")];
        assert_eq!(hypervisor(&texts[..1], METAL).as_deref(), Some("xen"));
        assert_eq!(hypervisor(&texts, METAL), None);
    }

    #[test]
    fn containers_are_told_by_what_their_runtimes_leave() {
        let told = |texts: &[(&str, &str)], environment| {
            let (_root, files) = machine(texts);
            container(&files, environment)
        };
        let pods = "0::/kubepods.slice/kubepods-pod1.slice/docker-ab.scope\n";
        assert_eq!(told(&[], None), None);
        assert_eq!(told(&[], Some("")), None);
        assert_eq!(told(&[], Some("lxc")).as_deref(), Some("lxc"));
        assert_eq!(told(&[("run/.containerenv", "")], None).as_deref(), Some("podman"));
        assert_eq!(told(&[("proc/1/cgroup", pods)], None).as_deref(), Some("kubernetes"));
        let docker = [("proc/self/cgroup", "4:memory:/docker/0f3a\n")];
        assert_eq!(told(&docker, None).as_deref(), Some("docker"));
        assert_eq!(told(&[("proc/1/cgroup", "0::/init.scope\n")], None), None);
        assert_eq!(told(&[(".dockerenv", "")], None).as_deref(), Some("docker"));
    }

    #[test]
    fn a_machine_made_from_an_image_is_no_container() {
        let (root, files) = machine(&[(".dockerenv", "")]);
        let links = root.path().join("proc/self/ns");
        fs::create_dir_all(&links).unwrap();
        for (kind, target) in FIRST_NAMESPACES {
            symlink(target, links.join(kind)).unwrap();
        }
        assert_eq!(container(&files, None), None);
        fs::remove_file(links.join("pid")).unwrap();
        symlink("pid:[4026532577]", links.join("pid")).unwrap();
        assert_eq!(container(&files, None).as_deref(), Some("docker"));
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
