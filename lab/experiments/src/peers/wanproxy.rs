//! WANProxy's figures of another day, for a page that is written without its program.

/// A section of the page. Its pair is the one of that day, so that both columns belong together.
pub(super) const MEASURED_BEFORE: &str = "
## WANProxy, measured on another day

No package has WANProxy. `REFRAIN_WANPROXY=BINARY` adds it to the tables above. The figures here are of another run:
measured on 2026-11-25 on two noisy cores, on other data, with the pair of that day and its default options. WANProxy
was built with `-O2` and had a cache of 128 MiB. *zlib* is its own second stage.

First transfer / the same again, in seconds:

| | pair | WANProxy | WANProxy, zlib |
|---|--:|--:|--:|
| a tar of Linux 2.1, 100 Mbit/s, no delay | 0.82 / 0.168 | 3.59 / 0.243 | 2.70 / 0.239 |
| a tar of Linux 2.1, 100 Mbit/s, 25 ms each way | 1.00 / 0.425 | 3.69 / 0.330 | 2.31 / 0.323 |
| samba of Silesia, 100 Mbit/s, 25 ms each way | 0.74 / 0.321 | 1.81 / 0.200 | 1.02 / 0.216 |
| samba of Silesia, 10 Mbit/s, 25 ms each way | 3.85 / 0.357 | 17.1 / 0.304 | 4.45 / 0.234 |

A whole series at 20 Mbit/s and 50 ms each way, in seconds. In brackets: bytes on the link for each byte of content.

| | pair | WANProxy, zlib |
|---|--:|--:|
| six tars of Linux 2.1.91 to 2.1.96 | 7.97 (0.041) | 10.0 (0.061) |
| 120 revisions of a page | 12.6 (0.022) | 16.8 (0.075) |
| packages of npm | 17.8 (0.963) | 19.0 (0.974) |
| Python wheels | 6.7 (0.143) | 12.3 (0.416) |
| mail | 5.1 (0.184) | 7.3 (0.263) |
";
