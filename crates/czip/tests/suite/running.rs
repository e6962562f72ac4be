//! What serves, in a thread of its own until it is told to stop, or dropped.

use std::{
    future::pending,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, mpsc},
    thread::{JoinHandle, panicking, spawn},
};

use refrain_czip::serve::Server;
use tokio::{net::TcpListener, runtime::Builder, sync::oneshot};

/// Done when the server is to stop.
pub(super) type Stopped = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(super) struct Running {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Runs `serve` before a port of its own.
    pub(super) fn start(
        serve: impl AsyncFnOnce(TcpListener, Stopped) -> io::Result<()> + Send + 'static,
    ) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let (bound, address) = mpsc::channel();
        let thread = spawn(move || {
            let runtime = Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build();
            let runtime = runtime.expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
                bound
                    .send(listener.local_addr().expect("an address"))
                    .expect("somebody waits");
                let stopped = Box::pin(async { drop(stopped.await) });
                serve(listener, stopped).await.expect("it serves");
            });
            // As the program does: a read that hangs is not waited for.
            runtime.shutdown_background();
        });
        Self {
            address: address.recv().expect("it listens"),
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Runs a server of archives.
    pub(super) fn of(server: Arc<Server>) -> Self {
        Self::start(async move |listener, stopped| server.run(listener, stopped, pending()).await)
    }

    /// Tells it to stop, and does not wait for it.
    pub(super) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits for its end.
    pub(super) fn wait(&mut self) {
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || panicking(), "it ends without a panic");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}
