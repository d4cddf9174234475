//! Profiles: which are accepted, and the messages for those that are not.

use super::*;

fn reason(text: &str) -> String {
    Profile::parse(text, "mine").unwrap_err().to_string()
}

const FIXED: &str = "about = 'x'\n[fixed]\nsize = '1GiB'\ncommand_time = '1ms'\nconcurrency = 1\n";

#[test]
fn every_shipped_profile_can_be_built_under_its_own_name() {
    assert!(Profile::shipped().len() >= 12);
    for (name, text) in Profile::shipped() {
        let profile = Profile::load(name).unwrap();
        assert_eq!(&profile.name, name);
        assert!(text.starts_with("# "), "{name} begins with a comment for its reader");
        assert!(!profile.about.is_empty() && profile.size_bytes > 1 << 30);
        assert_eq!(profile.build(1).size_bytes(), profile.size_bytes);
    }
}

#[test]
fn every_profile_in_the_folder_is_shipped() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles");
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let mut shipped: Vec<&str> = Profile::shipped().iter().map(|(name, _)| *name).collect();
    shipped.sort_unstable();
    assert_eq!(names, shipped);
}

#[test]
fn a_name_that_is_not_there_is_answered_with_those_that_are() {
    let reason = Profile::load("7200").unwrap_err().to_string();
    assert!(reason.contains("\"7200\"") && reason.contains("7200rpm, "), "{reason}");
}

#[test]
fn a_file_is_a_profile_under_its_own_name() {
    let path = std::env::temp_dir().join(format!("forebay-profile-{}.toml", std::process::id()));
    std::fs::write(&path, FIXED).unwrap();
    let profile = Profile::load(path.to_str().unwrap());
    std::fs::remove_file(&path).unwrap();
    let profile = profile.unwrap();
    assert_eq!(Some(&*profile.name), path.file_stem().and_then(|stem| stem.to_str()));
    assert_eq!((profile.size_bytes, profile.logical_block_bytes), (1 << 30, 512));
    let error = Profile::load(path.to_str().unwrap()).unwrap_err();
    assert!(matches!(error, ProfileError::Unreadable { .. }), "{error}");
}

#[test]
fn a_key_that_is_not_known_is_named_with_those_that_are() {
    let misspelt = reason(&FIXED.replace("concurrency", "concurency"));
    assert!(misspelt.contains("`concurency`") && misspelt.contains("`concurrency`"), "{misspelt}");
    let section = reason(&FIXED.replace("[fixed]", "[fixd]"));
    assert!(section.contains("`fixd`") && section.contains("`cloud`"), "{section}");
}

#[test]
fn a_value_that_is_no_amount_is_quoted() {
    let time = reason(&FIXED.replace("1ms", "1 parsec"));
    assert!(time.contains("1 parsec") && time.contains("command_time"), "{time}");
}

#[test]
fn a_device_is_made_of_one_thing() {
    assert!(reason("about = 'x'").contains("one section of"));
    let two = format!("{FIXED}[disk]\nlike = '7200rpm'\n");
    assert!(reason(&two).contains("one section of"));
}

#[test]
fn what_makes_no_device_is_refused_when_it_is_read() {
    let odd = format!("{FIXED}[array]\nlevel = 'raid10'\ncount = 3\nstripe = '64KiB'\n");
    assert!(reason(&odd).contains("`count`"), "[PRF-1] {}", reason(&odd));
    let steep = "about = 'x'\n[disk]\nlike = '7200rpm'\nseek_average = '30ms'\n";
    assert!(reason(steep).contains("no curve"), "[PRF-1] {}", reason(steep));
}

#[test]
fn a_section_like_another_differs_in_what_is_said() {
    let text = "about = 'x'\n[disk]\nlike = '7200rpm'\nsize = '2TB'\n";
    let profile = Profile::parse(text, "mine").unwrap();
    assert_eq!(profile.size_bytes, 2_000_000_000_000);
    let Base::Disk(disk) = profile.parts.base else { panic!("a disk") };
    assert_eq!(disk.rpm, 7200);
    let unknown = reason("about = 'x'\n[disk]\nlike = 'nvme'\n");
    assert!(unknown.contains("one of") && unknown.contains("7200rpm"), "{unknown}");
}

#[test]
fn an_array_is_as_large_as_what_it_holds_once() {
    let size = |level: &str| {
        let section = format!("[array]\nlevel = '{level}'\ncount = 4\nstripe = '64KiB'\n");
        Profile::parse(&format!("{FIXED}{section}"), "mine").unwrap().size_bytes
    };
    assert_eq!((size("raid0"), size("raid10")), (4 << 30, 2 << 30));
}
