//! TCP, with small messages sent at once.

use std::io;

use async_trait::async_trait;
use tokio::net::{TcpListener, TcpStream};

use super::{Listener, Net, Stream};

/// The network of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpNet;

#[async_trait]
impl Net for TcpNet {
    async fn bind(&self, host: &str, port: u16) -> io::Result<Box<dyn Listener>> {
        let listener = TcpListener::bind((host, port)).await?;
        let port = listener.local_addr()?.port();
        Ok(Box::new(Bound { listener, port }))
    }

    async fn dial(&self, endpoint: &str) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(endpoint).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}

struct Bound {
    listener: TcpListener,
    port: u16,
}

#[async_trait]
impl Listener for Bound {
    fn port(&self) -> u16 {
        self.port
    }

    async fn accept(&mut self) -> io::Result<Box<dyn Stream>> {
        let (stream, _) = self.listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}
