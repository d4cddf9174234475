//! Settings to paste: the advice as a postgresql.conf, a udev rule and a forebay.toml.
//!
//! Invariants:  [PAS-1] a setting that suits only some versions of PostgreSQL is a comment where there is advice
//!              for several: if a setting occurs twice, PostgreSQL takes the last, and a setting that a version
//!              does not know prevents it from starting
//!              [PAS-2] no text of a report ends a comment, a string or a line

use serde::Serialize;

use super::{Advice, AppliesTo, numbers};
use crate::facts::Storage;

/// All file names that can be written. No user's own file is likely to have one: they are written next to a report,
/// in any directory, and those of an earlier run are removed.
pub const FILES: [&str; 3] =
    ["postgresql.conf.forebay", "60-forebay.rules", "forebay.advised.toml"];

/// Columns of a comment.
const COMMENT_COLUMNS: usize = 98;

/// One file to paste or to copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Snippet {
    /// The name it has next to the report.
    pub file: &'static str,
    /// How to install it.
    pub about: String,
    /// Its lines.
    pub text: String,
}

/// The part of `advice` that can be pasted, measured on `storage`; one entry for each kind of file with
/// advice.
pub fn snippets(advice: &[Advice], storage: &Storage) -> Vec<Snippet> {
    [postgres(advice, storage), block_device(advice, storage), profile(advice)]
        .into_iter()
        .flatten()
        .collect()
}

/// `text` on one line, without characters that end a comment or string [PAS-2].
fn inert(text: &str) -> String {
    let dull =
        |letter: char| if letter.is_control() || "\"'\\".contains(letter) { ' ' } else { letter };
    text.chars().map(dull).collect()
}

/// `was 16; 2.10 times as fast`.
fn why(advice: &Advice) -> String {
    let was =
        advice.current.as_deref().map_or(String::new(), |was| format!("was {}; ", inert(was)));
    let [gain, low, high] = [advice.gain, advice.gain_low, advice.gain_high].map(numbers::number);
    format!("{was}{gain} times as fast ({low} to {high})")
}

/// A line that sets the value of `advice`; numbers are written as they are, words between `quote`s.
fn line(advice: &Advice, quote: char) -> String {
    let advised = &advice.advised;
    let is_plain = advised.parse::<f64>().is_ok_and(f64::is_finite)
        || ["true", "false"].contains(&advised.as_str());
    let advised =
        if is_plain { advised.clone() } else { format!("{quote}{}{quote}", inert(advised)) };
    format!("{} = {advised}  # {}\n", inert(&advice.setting), why(advice))
}

/// `text` as lines of a comment.
fn comment(text: &str) -> String {
    let lines = textwrap::wrap(text, COMMENT_COLUMNS);
    lines.iter().map(|line| format!("# {}\n", inert(line))).collect()
}

fn postgres(advice: &[Advice], storage: &Storage) -> Option<Snippet> {
    let is_postgres =
        |it: &&Advice| !matches!(it.applies_to, AppliesTo::BlockDevice | AppliesTo::Profile);
    let mut advice: Vec<&Advice> = advice.iter().filter(is_postgres).collect();
    advice.sort_by_key(|it| it.applies_to);
    let by_version: Vec<&[&Advice]> =
        advice.chunk_by(|a, b| a.applies_to == b.applies_to).collect();
    let is_of_all = |of_one: &[&Advice]| of_one[0].applies_to == AppliesTo::Postgres;
    let several = by_version.iter().filter(|of_one| !is_of_all(of_one)).count() > 1;
    let filesystem = storage.filesystem.as_deref().unwrap_or("an unknown filesystem");
    let mut text = comment(&format!(
        "Settings for PostgreSQL, measured by forebay lab on the disk of {} ({filesystem}). Append them to \
         postgresql.conf, or name this file there: include = 'FILE'. They take effect without a restart: \
         SELECT pg_reload_conf(). To take them back, remove them and reload again.",
        storage.directory
    ));
    if several {
        text += &comment(
            "PostgreSQL 18 reads in one of three ways, shown by SHOW io_method; older versions read in one way. Remove the # \
             before the settings of yours.",
        );
    }
    for of_one in by_version {
        text += &format!("\n# {}\n", of_one[0].applies_to);
        let hash = if several && !is_of_all(of_one) { "#" } else { "" }; // [PAS-1]
        for it in of_one {
            text += &comment(&it.evidence);
            text += &(hash.to_owned() + &line(it, '\''));
        }
    }
    let about = if several {
        "Append to postgresql.conf, and remove the # before the settings of your version."
    } else {
        "Append to postgresql.conf, then reload PostgreSQL."
    };
    (!advice.is_empty()).then(|| Snippet { file: FILES[0], about: about.to_owned(), text })
}

/// The readahead of the disk, if it is a real one whose name is known.
fn block_device(advice: &[Advice], storage: &Storage) -> Option<Snippet> {
    let advice = advice
        .iter()
        .rfind(|it| it.applies_to == AppliesTo::BlockDevice && it.setting == "read_ahead_kb")?;
    let kib: u64 = advice.advised.parse().ok()?;
    let device = storage.device.as_ref().filter(|_| storage.emulated.is_none())?;
    let disk = disk_of(&device.name);
    if !disk.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
        return None; // [PAS-2]
    }
    let (sectors, why) = (kib * 2, why(advice));
    let text = format!(
        "# Until the next start: blockdev --setra {sectors} /dev/{disk}\n# {why}\n\
         ACTION==\"add|change\", SUBSYSTEM==\"block\", KERNEL==\"{disk}\", ATTR{{queue/read_ahead_kb}}=\"{kib}\"\n"
    );
    let about = format!(
        "Copy to /etc/udev/rules.d/ to keep it; for now, as root: blockdev --setra {sectors} /dev/{disk}"
    );
    Some(Snippet { file: FILES[1], about, text })
}

/// The whole disk of a partition, since the queue is the disk's: `nvme0n1` of `nvme0n1p2`, `sda` of `sda1`.
fn disk_of(name: &str) -> &str {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let has_number = stem.len() < name.len();
    match stem.strip_suffix('p') {
        Some(disk) if has_number && disk.ends_with(|c: char| c.is_ascii_digit()) => disk,
        _ if ["sd", "vd", "xvd", "hd"].iter().any(|kind| name.starts_with(kind)) => stem,
        _ => name,
    }
}

/// A setting such as `tablespace.main.queue_depth` is a dotted key within a table.
fn profile(advice: &[Advice]) -> Option<Snippet> {
    let advice = advice.iter().filter(|it| it.applies_to == AppliesTo::Profile);
    let text: String = advice.map(|it| line(it, '"')).collect();
    let about = "Take its lines over into your forebay.toml, or load it as one.".to_owned();
    (!text.is_empty()).then_some(Snippet { file: FILES[2], about, text })
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    fn snippet(advice: &[Advice], file: &str) -> Option<Snippet> {
        snippets(advice, &sample::storage()).into_iter().find(|snippet| snippet.file == file)
    }

    #[test]
    fn each_kind_of_advice_is_in_its_file() {
        let all = snippets(&sample::advice(), &sample::storage());
        let files: Vec<&str> = all.iter().map(|snippet| snippet.file).collect();
        assert_eq!(files, FILES);
        assert!(snippets(&[], &sample::storage()).is_empty());
        assert!(
            all[1].text.ends_with("KERNEL==\"nvme1n1\", ATTR{queue/read_ahead_kb}=\"4096\"\n"),
            "{}",
            all[1].text
        );
        assert!(all[1].about.ends_with("blockdev --setra 8192 /dev/nvme1n1"));
        let mut emulated = sample::storage();
        emulated.device = None;
        assert_eq!(
            snippets(&sample::advice(), &emulated).len(),
            2,
            "no rule for a disk without a name"
        );
    }

    #[test]
    fn what_only_some_versions_know_is_a_comment_where_there_are_several() {
        let conf = snippet(&sample::advice(), "postgresql.conf.forebay").unwrap();
        let settings: Vec<&str> = conf
            .text
            .lines()
            .filter(|line| line.contains(" = ") && !line.starts_with("# "))
            .collect();
        assert!(
            settings[0].starts_with("random_page_cost = 1.1  # was 4;"),
            "[PAS-1] {}",
            conf.text
        );
        assert!(settings[1..].iter().all(|line| line.starts_with('#')), "[PAS-1] {}", conf.text);
        assert!(settings.len() > 2 && conf.about.contains("of your version"));
        let one = snippet(&sample::advice()[..1], "postgresql.conf.forebay").unwrap();
        assert!(
            one.text.contains("\neffective_io_concurrency = 64  # was 1; 34.6 times"),
            "[PAS-1] {}",
            one.text
        );
    }

    #[test]
    fn a_postgresql_conf_explains_itself() {
        let conf = snippet(&sample::advice(), "postgresql.conf.forebay").unwrap().text;
        let words = conf.replace("\n# ", " ");
        for text in
            ["forebay lab on the disk of /var/lib/forebay", "pg_reload_conf()", "SHOW io_method"]
        {
            assert!(words.contains(text), "{text} in {conf}");
        }
        for it in sample::advice().iter().filter(|it| it.applies_to == AppliesTo::Postgres18Worker)
        {
            assert!(words.contains(&inert(&it.evidence)), "{} in {conf}", it.evidence);
        }
        let is_setting = |line: &str| line.trim_start_matches('#').contains(" = ");
        let is_known = |line: &&str| line.is_empty() || line.starts_with('#') || is_setting(line);
        assert!(conf.lines().all(|line| is_known(&line)), "{conf}");
        let one = snippet(&sample::advice()[..1], "postgresql.conf.forebay").unwrap().text;
        assert!(!one.contains("SHOW io_method"), "{one}");
    }

    #[test]
    fn a_profile_is_one_that_the_pool_loads() {
        let toml = snippet(&sample::advice(), "forebay.advised.toml").unwrap();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("forebay.toml");
        std::fs::write(&file, &toml.text).unwrap();
        let main = forebay::Tablespace::new("main", directory.path());
        let builder = forebay::BufferPool::builder().frames(64).checksum(forebay::Checksum::Off);
        let builder = builder.torn_pages(forebay::TornPages::Unprotected).tablespace(main);
        builder.profile(file).build().unwrap();
        for set in ["queue_depth = 64", "tablespace.main.queue_depth = 32", "readahead = "] {
            assert!(toml.text.contains(set), "{set} is not in {}", toml.text);
        }
    }

    #[test]
    fn hostile_text_stays_in_its_line() {
        let mut advice = sample::advice();
        for it in &mut advice {
            it.current = Some("1\n\"'evil = 1\\".to_owned());
            it.advised = "2'\nevil = \"2\"".to_owned();
        }
        for snippet in snippets(&advice, &sample::storage()) {
            for line in snippet.text.lines() {
                assert!(!line.trim_start().starts_with("evil"), "[PAS-2] {}", snippet.text);
            }
            assert!(!snippet.text.contains('\\'), "[PAS-2]");
        }
        let mut storage = sample::storage();
        storage.device.as_mut().unwrap().name = "sda\" RUN+=\"evil".to_owned();
        assert!(
            snippets(&sample::advice(), &storage).iter().all(|it| !it.text.contains("evil")),
            "[PAS-2]"
        );
    }

    #[test]
    fn the_queue_of_a_partition_is_its_disks() {
        for (name, disk) in [
            ("sda1", "sda"),
            ("vda", "vda"),
            ("nvme0n1p2", "nvme0n1"),
            ("nvme0n1", "nvme0n1"),
            ("mmcblk0p1", "mmcblk0"),
            ("dm-0", "dm-0"),
            ("md127", "md127"),
            ("loop3", "loop3"),
        ] {
            assert_eq!(disk_of(name), disk);
        }
    }
}
