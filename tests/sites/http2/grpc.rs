//! gRPC's own library, through a pair: all four kinds of call, and one that is cancelled.

use std::{fs, process::Command};

use crate::{
    common::{
        addresses::free_address,
        certificate::certificate,
        eventually,
        programs::{are_large_ones_installed, run_ok},
    },
    served,
};

/// Debian's Python, whose packages lab/setup installs.
const PYTHON: &str = "/usr/bin/python3";

/// A service without descriptions of its messages, which are bytes.
const SERVER: &str = r#"
import sys, threading, grpc
from concurrent import futures

cancelled = threading.Event()

def slow(request, context):
    context.add_callback(cancelled.set)
    for _ in range(600):
        if not context.is_active():
            return
        yield b"tick"
        threading.Event().wait(0.1)

def fails(request, context):
    context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")

def metadata(request, context):
    value = dict(context.invocation_metadata())["x-own"]
    context.send_initial_metadata((("x-head", value),))
    context.set_trailing_metadata((("x-trailer", value), ("x-bytes-bin", b"\0\1")))
    return b"ok"

handlers = {
    "one": grpc.unary_unary_rpc_method_handler(lambda request, _: request[::-1]),
    "many_out": grpc.unary_stream_rpc_method_handler(lambda request, _: (request * n for n in range(50))),
    "many_in": grpc.stream_unary_rpc_method_handler(lambda requests, _: b"".join(requests)),
    "both": grpc.stream_stream_rpc_method_handler(lambda requests, _: (r.upper() for r in requests)),
    "slow": grpc.unary_stream_rpc_method_handler(slow),
    "fails": grpc.unary_unary_rpc_method_handler(fails),
    "metadata": grpc.unary_unary_rpc_method_handler(metadata),
    "cancelled": grpc.unary_unary_rpc_method_handler(lambda *_: b"yes" if cancelled.wait(20) else b"no"),
}
server = grpc.server(futures.ThreadPoolExecutor(max_workers=10))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", handlers),))
pair = (open("tls.key", "rb").read(), open("tls.crt", "rb").read())
server.add_secure_port("127.0.0.1:" + sys.argv[1], grpc.ssl_server_credentials((pair,)))
server.start()
server.wait_for_termination()
"#;

const CLIENT: &str = r#"
import queue, sys, grpc

credentials = grpc.ssl_channel_credentials(open("tls.crt", "rb").read())
channel = grpc.secure_channel("localhost:" + sys.argv[1], credentials)

assert channel.unary_unary("/test/one")(b"abc", timeout=20) == b"cba"
large = bytes(range(256)) * 8000
assert channel.unary_unary("/test/one")(large, timeout=20) == large[::-1]
out = list(channel.unary_stream("/test/many_out")(b"ab", timeout=20))
assert out == [b"ab" * n for n in range(50)], out
assert channel.stream_unary("/test/many_in")(iter([b"a", b"", b"b" * 100000]), timeout=20) == b"a" + b"b" * 100000

# Each message after the answer to the one before.
sent = queue.Queue()
call = channel.stream_stream("/test/both")(iter(sent.get, None), timeout=20)
for n in range(20):
    sent.put(b"m%d" % n)
    assert next(call) == b"M%d" % n
sent.put(None)
assert list(call) == []

call = channel.unary_stream("/test/slow")(b"", timeout=60)
assert next(call) == b"tick"
call.cancel()
assert channel.unary_unary("/test/cancelled")(b"", timeout=25) == b"yes"

try:
    channel.unary_unary("/test/fails")(b"", timeout=20)
    sys.exit("it succeeded")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.NOT_FOUND, error
    assert error.details() == "no such thing", error

answer, call = channel.unary_unary("/test/metadata").with_call(b"", timeout=20, metadata=(("x-own", "7"),))
assert dict(call.initial_metadata())["x-head"] == "7"
trailers = dict(call.trailing_metadata())
assert trailers["x-trailer"] == "7" and trailers["x-bytes-bin"] == b"\0\1", trailers
print("done")
"#;

#[test]
fn grpc_s_four_kinds_of_call_pass_and_a_cancelled_one_ends_at_the_site() {
    let has_grpc = Command::new(PYTHON).args(["-c", "import grpc"]).output();
    if !has_grpc.is_ok_and(|output| output.status.success())
        && !are_large_ones_installed(&["python3-grpcio"])
        || !are_large_ones_installed(&["openssl"])
    {
        return;
    }
    let folder = certificate();
    let write = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).expect("a new file");
    };
    write("server.py", SERVER);
    write("client.py", CLIENT);
    let site = free_address();
    let mut server = Command::new(PYTHON)
        .args(["server.py", &site.port().to_string()])
        .current_dir(folder.path())
        .spawn()
        .expect("Python starts");
    eventually("the server listens", || {
        std::net::TcpStream::connect(site).ok()
    });
    let (_pair, near) = served("https", folder.path(), site.port());
    // Once direct, and once through the pair.
    for port in [site.port(), near.port()] {
        let said = run_ok(PYTHON, folder.path(), &["client.py", &port.to_string()]);
        assert_eq!(said, b"done\n");
    }
    let _ = server.kill();
    let _ = server.wait();
}
