//! Members, lines, workers and the book, and how it went.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fastrand::Rng;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::book::{Book, clock, list};
use crate::support::{
    Cluster, Links, Port, Proxy, Puppet, Setup, ensure, listen, soon_nothing, within,
};

const WORKERS: usize = 10;
/// Machines that they run on, each with lines of its own to the members.
const HOSTS: usize = 5;
/// How long it may take until somebody gets in, and in the end everybody, once all is sound.
const PATIENCE: Duration = Duration::from_secs(60);

/// All there is.
pub struct Stage {
    pub cluster: Cluster,
    pub links: Links,
    /// For each host, its lines to each member.
    pub hosts: Vec<Vec<Proxy>>,
    pub workers: tokio::sync::Mutex<Vec<Puppet>>,
    pub book: Arc<Book>,
    faults: std::sync::Mutex<BTreeMap<String, usize>>,
    /// The longest time between the end of a fault and somebody getting in, in nanoseconds.
    slowest: AtomicU64,
    start: Box<dyn Fn(usize) -> Puppet + Send + Sync>,
}

impl Stage {
    /// Starts everything; `test` is this test, in whose other processes the workers work.
    pub async fn set<F: Copy + Send + Sync + 'static>(test: F) -> Self {
        let (cluster, links) = Setup::default().linked(3).await;
        let mut hosts = Vec::new();
        for _ in 0..HOSTS {
            let mut host = Vec::new();
            for endpoint in cluster.endpoints() {
                host.push(Proxy::to(&endpoint).await);
            }
            hosts.push(host);
        }
        let port = Port::take();
        let book = Arc::new(Book::default());
        tokio::spawn(serve(Arc::clone(&book), listen(port.addr())));
        let endpoints = |lines: &Vec<Proxy>| {
            let endpoints: Vec<_> = lines.iter().map(Proxy::endpoint).collect();
            endpoints.join(",")
        };
        let endpoints: Vec<_> = hosts.iter().map(endpoints).collect();
        let start = Box::new(move |worker: usize| {
            let (book, number) = (port.addr().to_string(), worker.to_string());
            let envs = [
                ("ENDPOINTS", &*endpoints[worker % HOSTS]),
                ("BOOK", &book),
                ("WORKER", &number),
            ];
            Puppet::rerun(test, "worker", &envs)
        });
        let workers = (0..WORKERS).map(&start).collect();
        Self {
            cluster,
            links,
            hosts,
            workers: tokio::sync::Mutex::new(workers),
            book,
            faults: std::sync::Mutex::default(),
            slowest: AtomicU64::default(),
            start,
        }
    }

    /// Makes all sorts of things go wrong, with members and with workers.
    pub async fn trouble(&self, seed: u64, time: Duration) {
        self.somebody_gets_in(clock()).await;
        let until = Instant::now() + time;
        let mut rng = Rng::with_seed(seed);
        let other = rng.fork();
        tokio::join!(
            self.trouble_members(rng, until),
            self.trouble_workers(other, until)
        );
    }

    /// Nothing goes wrong any more: waits until every worker has got everything once more and has ended.
    pub async fn calm(&mut self) {
        self.links.heal();
        self.hosts.iter().flatten().for_each(Proxy::heal);
        self.book.calm();
        within(PATIENCE, "every worker has had its turns", async || {
            let ended = self.book.ended();
            ensure(ended == WORKERS, format!("{ended} of {WORKERS}"))
        })
        .await;
        for worker in self.workers.lock().await.iter() {
            assert!(worker.process.exit().await.success(), "a worker failed");
        }
        soon_nothing(&self.cluster.client().await).await;
    }

    /// Fails if anything was not as it should be.
    pub fn check(&self) {
        let wrong = self.book.wrong();
        assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    }

    /// How it went, in one line.
    pub fn report(&self) -> String {
        let faults = self.faults.lock().unwrap();
        let (count, kinds) = (faults.values().sum::<usize>(), list(&faults));
        let slowest = Duration::from_nanos(self.slowest.load(Relaxed));
        let book = self.book.report();
        format!("{count} faults ({kinds}); {book}; at worst {slowest:.1?} to recover")
    }

    pub fn start(&self, worker: usize) -> Puppet {
        (self.start)(worker)
    }

    /// Something goes wrong.
    pub fn count(&self, fault: &str) {
        let mut faults = self.faults.lock().unwrap();
        *faults.entry(fault.to_owned()).or_default() += 1;
    }

    /// Waits until somebody gets in later than that, when what was wrong was over.
    pub async fn somebody_gets_in(&self, healed: u64) {
        within(PATIENCE, "somebody gets in", async || {
            ensure(self.book.last() > healed, "nobody")
        })
        .await;
        let took = self.book.last() - healed;
        self.slowest.fetch_max(took, Relaxed);
    }
}

/// Opens the book to everybody who connects.
async fn serve(book: Arc<Book>, listener: tokio::net::TcpListener) {
    loop {
        let (worker, _) = listener.accept().await.expect("a worker");
        tokio::spawn(listen_to(Arc::clone(&book), worker));
    }
}

/// Until the worker has ended or was killed. The first line says who it is.
async fn listen_to(book: Arc<Book>, mut worker: TcpStream) -> std::io::Result<()> {
    worker.set_nodelay(true)?;
    let (lines, mut answers) = worker.split();
    let mut lines = BufReader::new(lines).lines();
    let Some(name) = lines.next_line().await? else {
        return Ok(());
    };
    let worker = name.parse().expect("the number of a worker");
    while let Some(line) = lines.next_line().await? {
        if let Some(answer) = book.hear(worker, &line) {
            answers.write_all(format!("{answer}\n").as_bytes()).await?;
        }
    }
    Ok(())
}
