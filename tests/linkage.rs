//! `memlab` starts in milliseconds and on machines without libtorch, because it needs neither libtorch nor C++.
#![expect(clippy::unwrap_used, reason = "a binary that cannot be read fails the test")]

/// The kind of the section that names them, and the tag of its entries.
const DYNAMIC: usize = 6;
const NEEDED: usize = 1;

/// The names of the shared libraries that a little-endian 64-bit ELF file needs.
fn needed(path: &str) -> Vec<String> {
    let file = std::fs::read(path).unwrap();
    assert_eq!(&file[..6], b"\x7fELF\x02\x01", "a 64-bit little-endian ELF file");
    let number = |at: usize, size: usize| {
        file[at..at + size].iter().rev().fold(0_usize, |number, byte| number << 8 | usize::from(*byte))
    };
    let (table, entry, count) = (number(0x28, 8), number(0x3a, 2), number(0x3c, 2));
    let section = |index: usize| table + index * entry;
    let (kind, place, length, link) = (0x04, 0x18, 0x20, 0x28);
    let dynamic = (0..count).map(section).find(|at| number(at + kind, 4) == DYNAMIC).unwrap();
    let strings = number(section(number(dynamic + link, 4)) + place, 8);
    let (start, length) = (number(dynamic + place, 8), number(dynamic + length, 8));
    let names = (start..start + length).step_by(16).filter(|at| number(*at, 8) == NEEDED).map(|at| {
        let name = strings + number(at + 8, 8);
        let end = name + file[name..].iter().position(|byte| *byte == 0).unwrap();
        String::from_utf8(file[name..end].to_vec()).unwrap()
    });
    names.collect()
}

#[test]
fn memlab_links_neither_libtorch_nor_cpp() {
    let needed = needed(env!("CARGO_BIN_EXE_memlab"));
    assert!(needed.iter().any(|name| name.starts_with("libc.")), "the C library is needed: {needed:?}");
    let unwanted = ["torch", "libc10", "libstdc++", "libcuda", "libcudart", "libgomp"];
    let found: Vec<_> = needed.iter().filter(|name| unwanted.iter().any(|unwanted| name.contains(unwanted))).collect();
    assert!(found.is_empty(), "memlab needs {found:?}");
}
