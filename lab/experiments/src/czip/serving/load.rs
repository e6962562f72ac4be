//! Clients of a web server: each asks for files in an order of its own, again and again, on one
//! connection, reads what comes, and holds some of it against what the file has.

use std::{
    cell::RefCell,
    fs::File,
    io::{self, Read},
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    runtime::Builder,
    task::yield_now,
    time::{sleep_until, timeout_at},
};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// What is compared at once.
const BLOCK_BYTES: u64 = 1 << 20;
/// One block in so many is compared.
const BLOCKS_PER_CHECK: u64 = 16;
/// What a client reads at once.
const READ_BYTES: usize = 128 << 10;
/// Then another client of its thread has its turn, if there is more to read or not.
const READS_A_TURN: u64 = 16;
/// The longest head of an answer.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// A file that clients ask for.
#[derive(Debug)]
pub(super) struct Wanted {
    /// In the URL, without the slash before it.
    pub path: String,
    bytes: u64,
    /// Of its blocks.
    digests: Vec<u128>,
}

impl Wanted {
    /// The one at `path`, which has what `file` has.
    pub(super) fn new(path: String, file: &Path) -> anyhow::Result<Self> {
        let mut file = File::open(file).with_context(|| file.display().to_string())?;
        let mut digests = Vec::new();
        let mut block = Vec::new();
        let mut bytes = 0;
        loop {
            block.clear();
            (&mut file).take(BLOCK_BYTES).read_to_end(&mut block)?;
            if block.is_empty() {
                break;
            }
            bytes += block.len() as u64;
            digests.push(xxh3_128(&block));
        }
        ensure!(bytes > 0, "\"{path}\" is empty");
        Ok(Self {
            path,
            bytes,
            digests,
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Where clients are when the time begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// Anywhere in a file, as those that came at different times are.
    Anywhere,
    /// All at the beginning of a file.
    Together,
}

/// What clients do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load<'a> {
    pub address: SocketAddr,
    pub files: &'a Arc<Vec<Wanted>>,
    pub clients: usize,
    pub begin: Begin,
    pub lasts: Duration,
    /// Bytes a second, of all clients together.
    pub rate: Option<u64>,
}

/// What they received.
#[derive(Clone, Debug)]
pub(super) struct Received {
    /// By each client.
    pub bytes: Vec<u64>,
    /// By all in the second half of the time.
    pub later_bytes: u64,
    pub seconds: f64,
    pub blocks_checked: u64,
}

struct Shared {
    address: SocketAddr,
    files: Arc<Vec<Wanted>>,
    begin: Begin,
    bytes: Vec<AtomicU64>,
    blocks_checked: AtomicU64,
    bucket: Option<Bucket>,
}

impl Shared {
    fn all_bytes(&self) -> u64 {
        let bytes = self.bytes.iter();
        bytes.map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }
}

/// Holds all clients together to a rate: each pays for what it read before it reads on.
struct Bucket {
    rate: u64,
    /// When all that was read is paid for.
    paid: Mutex<Instant>,
}

impl Bucket {
    fn pay(&self, bytes: usize) -> Instant {
        let price = Duration::from_secs_f64(bytes as f64 / self.rate as f64);
        let mut paid = self.paid.lock().expect("nobody panics");
        // What nobody took in the meantime is gone, but for a little.
        let least = Instant::now() - Duration::from_millis(10);
        *paid = (*paid).max(least) + price;
        *paid
    }
}

/// Runs all clients for the time.
pub(super) fn run(load: &Load<'_>) -> anyhow::Result<Received> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let rate = load.rate;
    let shared = Arc::new(Shared {
        address: load.address,
        files: load.files.clone(),
        begin: load.begin,
        bytes: (0..load.clients).map(|_| AtomicU64::new(0)).collect(),
        blocks_checked: AtomicU64::new(0),
        bucket: rate.map(|rate| Bucket {
            rate,
            paid: Mutex::new(Instant::now()),
        }),
    });
    runtime.block_on(async {
        let began = Instant::now();
        let clients: Vec<_> = (0..load.clients)
            .map(|number| {
                let all = ask(shared.clone(), number);
                tokio::spawn(timeout_at((began + load.lasts).into(), all))
            })
            .collect();
        sleep_until((began + load.lasts / 2).into()).await;
        let earlier = shared.all_bytes();
        sleep_until((began + load.lasts).into()).await;
        let seconds = began.elapsed().as_secs_f64();
        let later_bytes = shared.all_bytes() - earlier;
        for client in clients {
            // They end when the time does, or with an error.
            if let Ok(Err(error)) = client.await? {
                return Err(error);
            }
        }
        let bytes = shared.bytes.iter();
        Ok(Received {
            bytes: bytes.map(|bytes| bytes.load(Ordering::Relaxed)).collect(),
            later_bytes,
            seconds,
            blocks_checked: shared.blocks_checked.load(Ordering::Relaxed),
        })
    })
}

async fn ask(shared: Arc<Shared>, number: usize) -> anyhow::Result<()> {
    let mut random = fastrand::Rng::with_seed(number as u64);
    let mut connection = TcpStream::connect(shared.address).await?;
    let mut order: Vec<usize> = (0..shared.files.len()).collect();
    let mut is_first = true;
    loop {
        random.shuffle(&mut order);
        for &index in &order {
            let file = &shared.files[index];
            let offset = match shared.begin {
                Begin::Anywhere if is_first => random.u64(0..file.bytes),
                _ => 0,
            };
            is_first = false;
            let path = &file.path;
            let head =
                format!("GET /{path} HTTP/1.1\r\nHost: here\r\nRange: bytes={offset}-\r\n\r\n");
            connection.write_all(head.as_bytes()).await?;
            let download = download(&shared, number, &mut connection, file, offset);
            download.await.with_context(|| file.path.clone())?;
        }
    }
}

thread_local! {
    /// Where a thread's clients read to, one after the other: it stays in the processor's cache.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

async fn download(
    shared: &Shared,
    number: usize,
    connection: &mut TcpStream,
    file: &Wanted,
    offset: u64,
) -> anyhow::Result<()> {
    let rest = head(connection, file.bytes - offset).await?;
    let mut check = Check::new(file, offset);
    let mut left = file.bytes - offset;
    let mut took = |piece: &[u8]| {
        let bytes = piece.len() as u64;
        ensure!(bytes <= left, "more bytes than announced");
        left -= bytes;
        shared.bytes[number].fetch_add(bytes, Ordering::Relaxed);
        let checked = check.take(piece)?;
        shared.blocks_checked.fetch_add(checked, Ordering::Relaxed);
        anyhow::Ok(left == 0)
    };
    if took(&rest)? {
        return Ok(());
    }
    for turn in 1_u64.. {
        if turn.is_multiple_of(READS_A_TURN) {
            yield_now().await;
        }
        connection.readable().await?;
        let (read, is_all) = BUFFER.with_borrow_mut(|buffer| {
            let read = match connection.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok((0, false)),
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                read => read?,
            };
            anyhow::Ok((read, took(&buffer[..read])?))
        })?;
        if is_all {
            return Ok(());
        }
        if let Some(bucket) = &shared.bucket
            && read > 0
        {
            sleep_until(bucket.pay(read).into()).await;
        }
    }
    unreachable!("it returns when it has all");
}

/// Reads the head of an answer that promises `bytes`; gives what came of them with it.
async fn head(connection: &mut TcpStream, bytes: u64) -> anyhow::Result<Vec<u8>> {
    let mut came = Vec::new();
    loop {
        connection.readable().await?;
        let mut piece = [0; 1024];
        match connection.try_read(&mut piece) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(read) => came.extend_from_slice(&piece[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error.into()),
        }
        if let Some(end) = came.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = came.split_off(end + 4);
            let head = String::from_utf8_lossy(&came).to_ascii_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            ensure!(
                head.starts_with("http/1.1 206 ")
                    && length.is_some_and(|length| length.trim() == bytes.to_string()),
                "unexpected response: {head}"
            );
            return Ok(rest);
        }
        ensure!(came.len() < HEAD_BYTES_MAX, "head too large (limit 8 KiB)");
    }
}

/// Holds some of a file's blocks against their digests.
struct Check<'a> {
    file: &'a Wanted,
    position: u64,
    /// Of the block that is being read, if it is one of them.
    hasher: Option<Xxh3>,
}

impl<'a> Check<'a> {
    fn new(file: &'a Wanted, position: u64) -> Self {
        let hasher = None;
        Self {
            file,
            position,
            hasher,
        }
    }

    /// The next bytes; how many blocks were compared.
    fn take(&mut self, mut piece: &[u8]) -> anyhow::Result<u64> {
        let mut checked = 0;
        while !piece.is_empty() {
            let block = self.position / BLOCK_BYTES;
            let within = self.position % BLOCK_BYTES;
            if within == 0 {
                let is_checked = block.is_multiple_of(BLOCKS_PER_CHECK);
                self.hasher = is_checked.then(Xxh3::new);
            }
            let end = self.file.bytes.min((block + 1) * BLOCK_BYTES);
            let count = (end - self.position).min(piece.len() as u64);
            let (now, later) = piece.split_at(count as usize);
            piece = later;
            self.position += count;
            let Some(hasher) = &mut self.hasher else {
                continue;
            };
            hasher.update(now);
            if self.position == end {
                let is_right = hasher.digest128() == self.file.digests[block as usize];
                ensure!(is_right, "wrong bytes before {end}");
                checked += 1;
            }
        }
        Ok(checked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(content: &[u8]) -> Wanted {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), content).expect("room");
        Wanted::new("name".to_owned(), file.path()).expect("a file")
    }

    #[test]
    fn wrong_bytes_are_found_however_they_come() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut content: Vec<u8> = (0..(BLOCK_BYTES * 17 + 5)).map(|_| random.u8(..)).collect();
        let file = wanted(&content);
        let check = |content: &[u8], piece_bytes: usize| {
            let mut check = Check::new(&file, 0);
            let pieces = content.chunks(piece_bytes);
            pieces
                .map(|piece| check.take(piece))
                .sum::<anyhow::Result<u64>>()
        };
        for piece_bytes in [999_983, 1 << 20, 64 << 20] {
            assert_eq!(check(&content, piece_bytes).expect("the same bytes"), 2);
        }
        content[(BLOCK_BYTES * 16) as usize + 9] ^= 1;
        assert!(check(&content, 999_983).is_err());
        let mut check = Check::new(&file, BLOCK_BYTES * 16 + 1);
        let rest = &content[(BLOCK_BYTES * 16) as usize + 1..];
        assert_eq!(check.take(rest).expect("its beginning was not read"), 0);
    }

    #[test]
    fn a_bucket_holds_to_its_rate() {
        let began = Instant::now();
        let bucket = Bucket {
            rate: 1_000_000,
            paid: Mutex::new(began),
        };
        let mut last = began;
        for _ in 0..10 {
            last = bucket.pay(1_000_000);
        }
        assert!(last >= began + Duration::from_secs(10));
    }
}
