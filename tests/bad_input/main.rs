//! Wrong keys, other versions, hostile peers, refusing targets, wrong options: each gives one
//! clear error where the user looks, and costs no other flow anything.

#[path = "../common/mod.rs"]
mod common;

mod greetings;
mod hostile_peers;
mod options;
mod targets;

fn block_on<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(test)
}
