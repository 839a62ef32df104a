//! Who can be talked to.

use std::net::{TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::time::Duration;

use carlos_tests_acceptance::acts::{ABSTRACT, NEIGHBOUR};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

use super::Attempt;

const SOON: Duration = Duration::from_secs(3);

pub(super) fn tcp(address: &str) -> Attempt {
    let stream = TcpStream::connect_timeout(&address.parse()?, SOON)?;
    Ok(format!("connected from {}", stream.local_addr()?))
}

pub(super) fn unix(path: &str) -> Attempt {
    UnixStream::connect(path)?;
    Ok("connected".into())
}

pub(super) fn datagram(path: &str) -> Attempt {
    UnixDatagram::unbound()?.connect(path)?;
    Ok("connected".into())
}

pub(super) fn abstract_name() -> Attempt {
    UnixStream::connect_addr(&SocketAddr::from_abstract_name(ABSTRACT)?)?;
    Ok("connected".into())
}

pub(super) fn udp() -> Attempt {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.send_to(b"out", NEIGHBOUR)?;
    Ok("sent".into())
}

pub(super) fn netlink() -> Attempt {
    made(AddressFamily::Netlink, SockType::Raw, Some(SockProtocol::NetlinkRoute))
}

pub(super) fn vsock() -> Attempt {
    made(AddressFamily::Vsock, SockType::Stream, None)
}

pub(super) fn raw() -> Attempt {
    made(AddressFamily::Inet, SockType::Raw, Some(SockProtocol::Icmp))
}

pub(super) fn packet() -> Attempt {
    made(AddressFamily::Packet, SockType::Raw, None)
}

fn made(family: AddressFamily, kind: SockType, protocol: Option<SockProtocol>) -> Attempt {
    socket(family, kind, SockFlag::empty(), protocol)?;
    Ok("made".into())
}
