//! What a worker must not reach, alive: the metadata service's address, a server on the loopback
//! address, and a socket in the abstract name space.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::thread;

use carlos_tests_acceptance::acts::{ABSTRACT, METADATA, NEIGHBOUR};

/// Accepts whoever comes.
pub(crate) fn forever() {
    let name = SocketAddr::from_abstract_name(ABSTRACT).unwrap();
    let local = UnixListener::bind_addr(&name).unwrap();
    for address in [METADATA, NEIGHBOUR] {
        let listener = TcpListener::bind(address).unwrap();
        thread::spawn(move || listener.incoming().for_each(drop));
    }
    println!("standing");
    local.incoming().for_each(drop);
}
