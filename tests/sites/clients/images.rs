//! Images of containers: skopeo, podman and containerd pull one from docker-registry, and check its digests.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
};

use super::{
    super::common::{
        addresses::free_address,
        content::letters,
        eventually,
        programs::{find, run_ok},
        sha256,
    },
    Access, Way, World, are_here, authority_of, on_each_way, output, text,
};

const REPOSITORY: &str = "project/image";

/// A process that is killed at its end.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The lines of a site in front of a registry.
fn lines(registry: SocketAddr) -> String {
    format!(
        "location /v2/ {{
             client_max_body_size 0; proxy_pass http://{registry}; proxy_set_header Host $http_host;
             proxy_set_header X-Forwarded-Proto $scheme;
         }}"
    )
}

/// Starts a registry with an image.
fn publish(world: &World, registry: SocketAddr) -> Killed {
    let folder = world.site.repository("registry");
    fs::create_dir(&folder).expect("a new folder");
    let configuration = format!(
        "version: 0.1\nlog: {{ level: error }}\nstorage: {{ filesystem: {{ rootdirectory: {}/data }} }}\n\
         http: {{ addr: \"{registry}\" }}\n",
        folder.display()
    );
    fs::write(folder.join("configuration"), configuration).expect("a new file");
    let child = Command::new(find("docker-registry").expect("its presence was tested"))
        .args(["serve", "configuration"])
        .current_dir(&folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let registry_process = Killed(child.expect("it starts"));
    eventually("a registry", || TcpStream::connect(registry).ok());
    build(&folder);
    let to = format!("docker://{registry}/{REPOSITORY}:v");
    run_ok(
        "skopeo",
        &folder,
        &[
            "--insecure-policy",
            "copy",
            "--quiet",
            "--dest-tls-verify=false",
            "oci:image:v",
            &to,
        ],
    );
    registry_process
}

/// Makes an image of one layer.
fn build(folder: &Path) {
    let image = folder.join("image");
    let blobs = image.join("blobs/sha256");
    fs::create_dir_all(&blobs).expect("a new folder");
    fs::create_dir(folder.join("tree")).expect("a new folder");
    fs::write(folder.join("tree/letters"), letters(1, 1_000_000)).expect("a new file");
    run_ok("tar", folder, &["-cf", "layer", "-C", "tree", "letters"]);
    let layer = fs::read(folder.join("layer")).expect("an archive");
    // What describes a blob in another.
    let add = |media_type: &str, blob: &[u8], more: &str| {
        let digest = sha256(blob);
        fs::write(blobs.join(&digest), blob).expect("a new file");
        format!(
            "{{\"mediaType\":\"application/vnd.oci.image.{media_type}\",\"digest\":\"sha256:{digest}\",\"size\":{}{more}}}",
            blob.len()
        )
    };
    let config = format!(
        "{{\"architecture\":\"amd64\",\"os\":\"linux\",\"config\":{{}},\"rootfs\":{{\"type\":\"layers\",\
         \"diff_ids\":[\"sha256:{}\"]}}}}",
        sha256(&layer)
    );
    let manifest = format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"config\":{},\"layers\":[{}]}}",
        add("config.v1+json", config.as_bytes(), ""),
        add("layer.v1.tar", &layer, "")
    );
    let name = ",\"annotations\":{\"org.opencontainers.image.ref.name\":\"v\"}";
    let index = format!(
        "{{\"schemaVersion\":2,\"manifests\":[{}]}}",
        add("manifest.v1+json", manifest.as_bytes(), name)
    );
    fs::write(image.join("index.json"), index).expect("a new file");
    fs::write(
        image.join("oci-layout"),
        "{\"imageLayoutVersion\":\"1.0.0\"}",
    )
    .expect("a new file");
}

/// Has a client pull the image on each way.
#[track_caller]
fn pulled<T: PartialEq + std::fmt::Debug>(client: impl Fn(&Access) -> T + Sync) {
    let registry = free_address();
    let mut running = None;
    on_each_way(
        &lines(registry),
        |world| running = Some(publish(world, registry)),
        client,
    );
}

/// A folder with the certificate that the client trusts, as these programs want it.
fn certificates(access: &Access) -> String {
    let folder = access.folder.join("certificates");
    fs::create_dir(&folder).expect("a new folder");
    fs::copy(access.trusted(), folder.join("ca.crt")).expect("a new file");
    text(&folder)
}

/// The registry's name in the name of an image.
fn registry(access: &Access) -> String {
    let url = access.url();
    let (_, host) = url.split_once("://").expect("a URL");
    host.to_owned()
}

#[test]
fn skopeo_copies_an_image() {
    if !are_here(&["tar"], &["docker-registry", "skopeo"]) {
        return;
    }
    pulled(|access| {
        let verify = format!("--src-tls-verify={}", access.way != Way::Mirror);
        let from = format!("docker://{}/{REPOSITORY}:v", registry(access));
        access.run(
            "skopeo",
            &[
                "--insecure-policy",
                "copy",
                "--quiet",
                &verify,
                "--src-cert-dir",
                &certificates(access),
                &from,
                "dir:image",
            ],
        );
        let files = fs::read_dir(access.folder.join("image")).expect("a folder");
        let mut files: Vec<String> = files
            .map(|file| sha256(&fs::read(file.expect("a file").path()).expect("a file")))
            .collect();
        files.sort();
        files
    });
}

#[test]
fn podman_pulls_an_image() {
    if !are_here(
        &["tar"],
        &["docker-registry", "skopeo", "podman", "conmon", "crun"],
    ) {
        return;
    }
    pulled(|access| {
        let authority = authority_of(&access.world.site);
        // A mirror is of a registry that cannot be reached otherwise.
        let location = match access.way {
            Way::Mirror => "127.0.0.1:9",
            _ => &authority,
        };
        let mut registries =
            format!("[[registry]]\nprefix = \"{authority}\"\nlocation = \"{location}\"\n");
        if access.way == Way::Mirror {
            let mirror = access.world.mirror;
            registries +=
                &format!("[[registry.mirror]]\nlocation = \"{mirror}\"\ninsecure = true\n");
        }
        fs::write(access.folder.join("registries.conf"), registries).expect("a new file");
        let policy = "{\"default\":[{\"type\":\"insecureAcceptAnything\"}]}";
        fs::write(access.folder.join("policy.json"), policy).expect("a new file");
        let certificates = certificates(access);
        let image = format!("{authority}/{REPOSITORY}:v");
        let podman = |arguments: &[&str]| {
            let storage = [
                "--root",
                "root",
                "--runroot",
                "run",
                "--storage-driver",
                "vfs",
            ];
            let groups = ["--cgroup-manager", "cgroupfs"];
            let mut podman = access.program("podman", &[&storage, &groups[..], arguments].concat());
            podman.env(
                "CONTAINERS_REGISTRIES_CONF",
                access.folder.join("registries.conf"),
            );
            output(&mut podman)
        };
        podman(&[
            "pull",
            "--quiet",
            "--signature-policy",
            "policy.json",
            "--cert-dir",
            &certificates,
            &image,
        ]);
        podman(&[
            "image",
            "inspect",
            "--format",
            "{{.Digest}} {{.RootFS.Layers}}",
            &image,
        ])
    });
}

#[test]
fn containerd_pulls_an_image() {
    if !are_here(
        &["tar"],
        &["docker-registry", "skopeo", "containerd", "ctr"],
    ) {
        return;
    }
    pulled(|access| {
        let folder = text(&access.folder);
        let configuration = format!(
            "version = 2\nroot = \"{folder}/root\"\nstate = \"{folder}/state\"\n\
             disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = \"{folder}/socket\"\n"
        );
        fs::write(access.folder.join("configuration"), configuration).expect("a new file");
        let daemon = Command::new(find("containerd").expect("its presence was tested"))
            .args(["--config", "configuration"])
            .current_dir(&access.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let _daemon = Killed(daemon.expect("it starts"));
        let authority = authority_of(&access.world.site);
        let hosts = access.folder.join("hosts").join(&authority);
        fs::create_dir_all(&hosts).expect("a new folder");
        let by = match access.way {
            // Without a server that could be reached otherwise.
            Way::Mirror => format!(
                "server = \"https://127.0.0.1:9\"\n[host.\"http://{}\"]\ncapabilities = [\"pull\", \"resolve\"]\n",
                access.world.mirror
            ),
            _ => format!(
                "server = \"https://{authority}\"\nca = \"{}\"\n",
                access.trusted().display()
            ),
        };
        fs::write(hosts.join("hosts.toml"), by).expect("a new file");
        let socket = format!("{folder}/socket");
        eventually("containerd", || Path::new(&socket).exists().then_some(()));
        let image = format!("{authority}/{REPOSITORY}:v");
        let hosts = format!("{folder}/hosts");
        let ctr = |arguments: &[&str]| {
            access.run(
                "ctr",
                &[&["--address", &socket, "images"], arguments].concat(),
            )
        };
        ctr(&[
            "pull",
            "--hosts-dir",
            &hosts,
            "--snapshotter",
            "native",
            &image,
        ]);
        let listed = String::from_utf8(ctr(&["ls"])).expect("text");
        let digest = listed
            .split_whitespace()
            .find(|word| word.starts_with("sha256:"));
        digest.expect("an image").to_owned()
    });
}
