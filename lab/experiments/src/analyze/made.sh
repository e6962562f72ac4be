# Makes a capture: four clients fetch files of a server over HTTP and SMB, each from a network namespace.
# $1: the data; $2: the capture to write. The current directory is empty, and has room for 6 GB.
set -euo pipefail
data=$1 capture=$2 id=$$
server=made$id-s
clients=(1 2 3 4)
children=()

finish() {
    kill "${children[@]}" 2>/dev/null || true
    wait
    for name in "$server" "${clients[@]/#/made$id-}"; do
        ip netns delete "$name" 2>/dev/null || true
    done
}
trap finish EXIT

mkdir -p site/{releases,pages/github,pages/brevo} run
zstd -qdc --long=31 "$data/linux-2.0.1-2.0.40.tar.zst" | tar -xf - -C site/releases
zstd -qdc "$data/pages/github-tos.tar.zst" | tar -xf - -C site/pages/github
zstd -qdc "$data/pages/brevo-privacy.tar.zst" | tar -xf - -C site/pages/brevo
zstd -qdc "$data/mail/spamassassin-ham.mbox.zst" >site/mail.mbox
cp "$data"/recipes/d3-debs.tsv site/packages.tsv
(cd site && find releases pages -type f | sort -V) >all
mapfile -t releases < <(grep ^releases all)
mapfile -t pages < <(grep ^pages all)

ip netns add "$server"
ip -n "$server" link set lo up
ip -n "$server" link add bridge type bridge
ip -n "$server" address add 10.77.0.1/24 dev bridge
ip -n "$server" link set bridge up
ip -n "$server" link set bridge gso_max_segs 1
for client in "${clients[@]}"; do
    ip netns add "made$id-$client"
    ip -n "made$id-$client" link add eth0 type veth peer name "client$client" netns "$server"
    ip -n "$server" link set "client$client" master bridge up
    ip -n "made$id-$client" address add "10.77.0.1$client/24" dev eth0
    ip -n "made$id-$client" link set eth0 up
    # Packets of 1,500 bytes, as a network has them.
    ip -n "made$id-$client" link set eth0 gso_max_segs 1
    ip -n "$server" link set "client$client" gso_max_segs 1
done

cat >run/nginx.conf <<END
daemon off;
pid $PWD/run/nginx.pid;
error_log $PWD/run/nginx.log;
events {}
http {
    access_log off;
    client_body_temp_path $PWD/run;
    proxy_temp_path $PWD/run;
    fastcgi_temp_path $PWD/run;
    uwsgi_temp_path $PWD/run;
    scgi_temp_path $PWD/run;
    server { listen 10.77.0.1:80; root $PWD/site; }
}
END
cat >run/smb.conf <<END
[global]
server role = standalone server
interfaces = 10.77.0.1/24
bind interfaces only = yes
private dir = $PWD/run
lock directory = $PWD/run
state directory = $PWD/run
cache directory = $PWD/run
pid directory = $PWD/run
ncalrpc dir = $PWD/run
log file = $PWD/run/samba.log
disable netbios = yes
load printers = no
server smb encrypt = off
server signing = disabled
[share]
path = $PWD/site
read only = yes
END
chmod 755 . site
printf 'password\npassword\n' | smbpasswd -c run/smb.conf -L -s -a root >/dev/null
inside() { ip netns exec "$@"; }
# Without the function, which would be a process of its own: signals go to the program. smbd ends its whole group.
ip netns exec "$server" nginx -c "$PWD/run/nginx.conf" 2>run/nginx.err &
children+=($!)
ip netns exec "$server" setsid smbd --foreground --no-process-group --debug-stdout --configfile="$PWD/run/smb.conf" >run/smbd.log &
children+=($!)
ip netns exec "$server" dumpcap -q -i bridge -B 512 -w "$capture" 2>run/dumpcap.log &
dumpcap=$!
children+=($dumpcap)
for attempt in {1..100}; do
    if inside "made$id-1" curl -fsS -o run/probe http://10.77.0.1/packages.tsv 2>run/curl.log &&
        inside "made$id-1" smbclient //10.77.0.1/share -U root%password -m SMB3 -c ls >run/smbclient.log; then
        break
    fi
    ((attempt < 100))
    sleep 0.1
done

# Each client gets all releases and pages over HTTP, one after the other, and some files over SMB. 30 MB/s for each.
fetch() {
    local client=$1 file
    local curl=(inside "made$id-$client" curl -fsS --limit-rate 30M -o "run/got$client")
    for file in "${releases[@]}"; do
        "${curl[@]}" "http://10.77.0.1/$file"
    done
    for file in "${pages[@]}"; do
        printf 'url = "http://10.77.0.1/%s"\noutput = "run/got%s"\n' "$file" "$client"
    done >"run/pages$client"
    inside "made$id-$client" curl -fsS -K "run/pages$client"
    inside "made$id-$client" smbclient //10.77.0.1/share -U root%password -m SMB3 -c \
        "get mail.mbox run/got$client; get ${releases[$client]} run/got$client; get ${releases[$client + 1]} run/got$client" \
        >"run/smbclient$client.log"
}
fetching=()
for client in "${clients[@]}"; do
    fetch "$client" &
    fetching+=($!)
done
for child in "${fetching[@]}"; do
    wait "$child"
done
sleep 1
kill "$dumpcap"
wait "$dumpcap" || true
cat run/dumpcap.log
