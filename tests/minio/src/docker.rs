//! MinIO in a container.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A daemon that does not answer a ping by then counts as not there.
const PING_TIME: Duration = Duration::from_secs(3);

/// Whether a container can be had.
pub(crate) fn available() -> Result<(), String> {
    ping()?;
    match cfg!(feature = "docker") {
        true => Ok(()),
        false => Err("Docker answers, but these tests are built without --features docker".into()),
    }
}

/// Asks the daemon at its usual socket, or the one that `DOCKER_HOST` names.
fn ping() -> Result<(), String> {
    let host =
        std::env::var("DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".into());
    let Some(path) = host.strip_prefix("unix://") else {
        return Err(format!("no Docker: {host} is not a local socket"));
    };
    let asked = UnixStream::connect(path).and_then(|mut socket| {
        socket.set_read_timeout(Some(PING_TIME))?;
        socket.write_all(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")?;
        let mut answer = [0; 64];
        let length = socket.read(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
    });
    match asked {
        Ok(answer) if answer.contains(" 200 ") => Ok(()),
        Ok(_) => Err(format!("no Docker: {host} does not answer a ping")),
        Err(error) => Err(format!("no Docker: {host}: {error}")),
    }
}

#[cfg(feature = "docker")]
pub(crate) use with_docker::{Container, start};

#[cfg(not(feature = "docker"))]
pub(crate) use without_docker::{Container, start};

#[cfg(not(feature = "docker"))]
mod without_docker {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use crate::server::{Server, UserKeys};

    pub(crate) enum Container {}

    impl Container {
        pub(crate) fn stop(&self) {
            match *self {}
        }

        pub(crate) fn grant(&self, _: &str, _: &str, _: &Value) {
            match *self {}
        }
    }

    pub(crate) fn start(_: BTreeMap<String, UserKeys>) -> Result<Server, String> {
        Err("built without --features docker".into())
    }
}

#[cfg(feature = "docker")]
mod with_docker {
    use std::collections::BTreeMap;
    use std::sync::Mutex;
    use std::time::Duration;

    use carlos_cli::admin::grants::Dialect;
    use serde_json::Value;
    use testcontainers::core::{ExecCommand, IntoContainerPort, WaitFor};
    use testcontainers::runners::AsyncRunner;
    use testcontainers::{ContainerAsync, GenericImage, ImageExt};
    use tokio::runtime::Runtime;

    use crate::server::{Kind, Running, Server, UserKeys};

    const IMAGE: &str = "quay.io/minio/minio";
    const TAG: &str = "RELEASE.2025-09-07T16-13-09Z";
    const PORT: u16 = 9000;

    /// A first start may have to fetch the image.
    const START_TIME: Duration = Duration::from_secs(120);

    /// A running container, with a runtime of its own so that any thread may talk to it.
    pub(crate) struct Container {
        minio: Mutex<Option<ContainerAsync<GenericImage>>>,
        runtime: Runtime,
    }

    impl Container {
        pub(crate) fn stop(&self) {
            let taken = self.minio.lock().unwrap().take();
            if let Some(minio) = taken {
                self.runtime.block_on(minio.rm()).unwrap();
            }
        }

        /// Gives `user` one more policy; MinIO's buckets have none for users. `name` is the
        /// policy's, which no other may have.
        pub(crate) fn grant(&self, user: &str, name: &str, policy: &Value) {
            let file = format!("/tmp/{name}.json");
            // A policy holds names and no quote signs of the shell's.
            self.run(&format!("printf '%s' '{policy}' > {file}"));
            self.run(&format!("mc admin policy create local {name} {file}"));
            self.run(&format!("mc admin policy attach local {name} --user {user}"));
        }

        fn run(&self, script: &str) {
            let minio = self.minio.lock().unwrap();
            let minio = minio.as_ref().unwrap();
            let command = ExecCommand::new(["sh", "-c", script]);
            self.runtime.block_on(async {
                let mut ran = minio.exec(command).await.unwrap();
                let said = ran.stderr_to_vec().await.unwrap();
                let code = ran.exit_code().await.unwrap();
                assert_eq!(code, Some(0), "{}", String::from_utf8_lossy(&said));
            });
        }
    }

    /// Starts MinIO, whose root is the operator, and makes the other users with the client that
    /// its image holds.
    pub(crate) fn start(mut users: BTreeMap<String, UserKeys>) -> Result<Server, String> {
        // MinIO knows users by their access key.
        for (name, keys) in &mut users {
            keys.id.clone_from(name);
        }
        let runtime = Runtime::new().unwrap();
        let (minio, endpoint) = runtime.block_on(run(&users["operator"]))?;
        let container = Container { minio: Mutex::new(Some(minio)), runtime };
        let root = &users["operator"];
        let here = format!("http://127.0.0.1:{PORT}");
        container.run(&format!("mc alias set local {here} {} {}", root.id, root.secret));
        for (name, keys) in users.iter().filter(|(name, _)| *name != "operator") {
            container.run(&format!("mc admin user add local {name} {}", keys.secret));
        }
        let (dialect, running) = (Dialect::minio(), Running::Docker(container));
        Ok(Server { kind: Kind::Docker, endpoint, dialect, users, running })
    }

    async fn run(root: &UserKeys) -> Result<(ContainerAsync<GenericImage>, String), String> {
        let image = GenericImage::new(IMAGE, TAG)
            .with_exposed_port(PORT.tcp())
            .with_wait_for(WaitFor::message_on_stderr("API:"))
            .with_env_var("MINIO_ROOT_USER", &root.id)
            .with_env_var("MINIO_ROOT_PASSWORD", &root.secret)
            .with_cmd(["server", "/data"])
            .with_startup_timeout(START_TIME);
        let minio = image.start().await.map_err(|error| error.to_string())?;
        let host = minio.get_host().await.map_err(|error| error.to_string())?;
        let port = minio.get_host_port_ipv4(PORT).await.map_err(|error| error.to_string())?;
        Ok((minio, format!("http://{host}:{port}")))
    }
}
