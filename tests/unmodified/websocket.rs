//! A WebSocket.

use crate::{
    common::websocket::{start_echo_on, talk},
    place::{Needs, Place, Program},
};

pub(crate) const PROGRAM: Program = Program {
    needs: Needs::Usual(&[]),
    test,
};

fn test(place: &Place) {
    for host in place.hosts() {
        let server = place.at_origin(|| start_echo_on(host.at(80)));
        place.connected(server, |stream| talk(stream, server));
    }
}
