//! The tree of inodes, without a kernel.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{collection::vec, prelude::*};
use refrain_czip::tree::{Inode, Node, NodeKind, Tree};
use refrain_czip_format::catalog::{Entry, EntryKind};

fn entry(path: &str, kind: EntryKind) -> Entry {
    Entry {
        path: path.into(),
        kind,
        mode: 0o777,
        mtime_s: 7,
        mtime_ns: 8,
    }
}

fn file(path: &str, bytes: u64) -> Entry {
    entry(path, EntryKind::File { bytes })
}

fn folder(path: &str) -> Entry {
    entry(path, EntryKind::Folder)
}

fn hard_link(path: &str, target: &str) -> Entry {
    let target = target.into();
    entry(path, EntryKind::HardLink { target })
}

fn find(tree: &Tree, path: &str) -> Option<Inode> {
    path.split('/').try_fold(Inode::ROOT, |folder, name| {
        tree.child(folder, name.as_bytes())
    })
}

fn node<'a>(tree: &'a Tree, path: &str) -> &'a Node {
    let inode = find(tree, path).unwrap_or_else(|| panic!("{path}"));
    tree.node(inode).expect("a child is a node")
}

/// All paths below a folder, with what is there.
fn walk(tree: &Tree, folder: Inode, path: &str, found: &mut BTreeMap<String, Inode>) {
    let NodeKind::Folder(children) = &tree.node(folder).expect("a node").kind else {
        return;
    };
    assert!(children.is_sorted_by(|one, next| one.0 < next.0));
    for (name, inode) in children {
        let name = std::str::from_utf8(name).unwrap();
        let path = format!("{path}{name}");
        walk(tree, *inode, &format!("{path}/"), found);
        found.insert(path, *inode);
    }
}

fn all(tree: &Tree) -> BTreeMap<String, Inode> {
    let mut found = BTreeMap::new();
    walk(tree, Inode::ROOT, "", &mut found);
    found
}

/// Entries as a catalog may have them: folders, before all that is in them, and files; other names of some
/// files.
fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let path = vec(prop::sample::select(vec!["a", "b", "c", "dd"]), 1..5);
    let one = (path, 0..1000u64, 0..4u8);
    vec(one, 0..40).prop_map(|drawn| {
        let mut entries: Vec<Entry> = Vec::new();
        let mut kinds = BTreeMap::<String, bool>::new();
        let mut first: Option<String> = None;
        for (path, bytes, kind) in drawn {
            let path = path.join("/");
            let parents = path.match_indices('/').map(|(at, _)| path[..at].to_owned());
            let parents: Vec<_> = parents.collect();
            let is_below_file = parents
                .iter()
                .any(|parent| kinds.get(parent) == Some(&false));
            if kinds.contains_key(&path) || is_below_file {
                continue;
            }
            for parent in parents {
                if kinds.insert(parent.clone(), true).is_none() {
                    entries.push(folder(&parent));
                }
            }
            entries.push(match (kind, &first) {
                (0, _) => folder(&path),
                (1, Some(first)) => hard_link(&path, first),
                _ => {
                    first.get_or_insert(path.clone());
                    file(&path, bytes)
                }
            });
            kinds.insert(path, kind == 0);
        }
        entries
    })
}

proptest! {
    #[test]
    fn all_entries_are_shown_and_nothing_else(entries in entries()) {
        let tree = Tree::new(entries.clone());
        let found = all(&tree);
        let paths = entries.iter().map(|entry| String::from_utf8(entry.path.clone()).unwrap());
        let expected: BTreeSet<_> = paths.collect();
        prop_assert_eq!(found.keys().cloned().collect::<BTreeSet<_>>(), expected);
        let inodes: BTreeSet<_> = found.values().collect();
        prop_assert_eq!(inodes.len() as u64 + 1, tree.count());
        for (path, inode) in &found {
            prop_assert_eq!(find(&tree, path), Some(*inode));
            let names: Vec<_> = found.iter().filter(|(_, other)| *other == inode).collect();
            let node = tree.node(*inode).unwrap();
            let links = match &node.kind {
                NodeKind::Folder(children) => {
                    let is_folder = |(_, child): &&(Box<[u8]>, Inode)| {
                        matches!(tree.node(*child).unwrap().kind, NodeKind::Folder(_))
                    };
                    2 + children.iter().filter(is_folder).count()
                }
                _ => names.len(),
            };
            prop_assert_eq!(node.links as usize, links);
            let named = String::from_utf8(tree.path(*inode)).unwrap();
            prop_assert!(names.iter().any(|(name, _)| **name == named));
        }
        prop_assert_eq!(tree.left_out(), 0);
    }

    #[test]
    fn files_have_the_bytes_that_the_catalog_gives_them(entries in entries()) {
        let tree = Tree::new(entries.clone());
        let mut end = 0;
        for entry in &entries {
            if let EntryKind::File { bytes } = entry.kind {
                let path = std::str::from_utf8(&entry.path).unwrap();
                prop_assert_eq!(&node(&tree, path).kind, &NodeKind::File { start: end, bytes });
                end += bytes;
            }
            if let EntryKind::HardLink { target } = &entry.kind {
                let [path, target] = [&entry.path, target].map(|path| std::str::from_utf8(path).unwrap());
                prop_assert_eq!(find(&tree, path), find(&tree, target));
            }
        }
    }
}

#[test]
fn nothing_may_be_written_and_links_say_what_they_said() {
    let target = b"../nowhere".to_vec();
    let link = entry(
        "d/l",
        EntryKind::SymbolicLink {
            target: target.clone(),
        },
    );
    let setuid = Entry {
        mode: 0o4_755,
        ..file("d/f", 1)
    };
    let tree = Tree::new(vec![folder("d"), setuid, link]);
    assert_eq!(node(&tree, "d").mode, 0o777);
    assert_eq!(node(&tree, "d/f").mode, 0o4_755);
    assert_eq!(tree.node(Inode::ROOT).unwrap().mode, 0o555);
    let link = node(&tree, "d/l");
    assert_eq!(link.mode, 0o777);
    assert_eq!(link.kind, NodeKind::SymbolicLink(target.into()));
    assert_eq!((link.mtime_s, link.mtime_ns, link.links), (7, 8, 1));
}

#[test]
fn the_root_is_as_old_as_the_newest_of_all() {
    let dated = |entry, mtime_s| Entry { mtime_s, ..entry };
    let tree = Tree::new(vec![
        dated(folder("a"), -100),
        dated(file("a/x", 0), -9),
        dated(file("a/y", 0), -5),
    ]);
    assert_eq!(node(&tree, "a").mtime_s, -100);
    assert_eq!(tree.node(Inode::ROOT).unwrap().mtime_s, -5);
    assert_eq!(Tree::new(vec![]).node(Inode::ROOT).unwrap().mtime_s, 0);
}

#[test]
fn a_stream_without_a_name_is_called_content() {
    let tree = Tree::new(vec![file("", 5)]);
    assert_eq!(
        node(&tree, "content").kind,
        NodeKind::File { start: 0, bytes: 5 }
    );
    assert_eq!(tree.count(), 2);
}

#[test]
fn names_that_no_kernel_takes_are_left_out_and_those_beside_them_are_not() {
    let long = "n".repeat(1025);
    let tree = Tree::new(vec![
        file(&long, 5),
        folder("d"),
        folder(&format!("d/{long}")),
        file(&format!("d/{long}/f"), 6),
        file("d/g", 7),
        hard_link("d/h", &long),
        file(&"n".repeat(1024), 8),
    ]);
    assert_eq!(tree.left_out(), 4);
    assert_eq!(all(&tree).len(), 3);
    assert_eq!(
        node(&tree, "d/g").kind,
        NodeKind::File {
            start: 11,
            bytes: 7
        }
    );
}

#[test]
fn numbers_that_are_no_inodes_are_none() {
    let tree = Tree::new(vec![file("f", 1)]);
    for number in [0, 3, u64::MAX] {
        assert_eq!(tree.node(Inode(number)), None);
        assert_eq!(tree.child(Inode(number), b"f"), None);
    }
    assert_eq!(tree.child(Inode(2), b"f"), None);
}
