//! HTTP as a client speaks it.

use std::{net::SocketAddr, time::Duration};

/// The status code and the body of a page.
pub fn get(
    address: SocketAddr,
    path: &str,
    token: Option<&str>,
) -> Result<(u16, String), ureq::Error> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(Duration::from_secs(10)))
        .http_status_as_error(false)
        .proxy(None)
        .build()
        .into();
    let mut request = agent.get(format!("http://{address}{path}"));
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let mut response = request.call()?;
    let body = response.body_mut().read_to_string()?;
    Ok((response.status().as_u16(), body))
}
