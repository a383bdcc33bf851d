//! Requests that wait for the limits of their disk (`requests/limits.rs`).

use crate::cx::Cx;
use crate::engine::{Busy, Parts};
use crate::ids::Nanos;
use crate::request::Request;

impl Parts {
    /// Submits a request, or holds it. Nothing is held any more that would be refused.
    pub(in crate::engine) fn submit_limited(
        &mut self,
        request: &Request,
        cx: &mut Cx<'_>,
    ) -> Result<(), Busy> {
        if self.refuses.is_some() {
            return self.submit(request, cx);
        }
        if self.requests.is_full() {
            return Err(Busy);
        }
        for _ in 0..self.requests.limiter.in_the_way(request) {
            if let Some(held) = self.requests.limiter.next_in_debt(cx.now) {
                self.release(held, cx);
            }
        }
        if self.requests.limiter.take(request, cx.now) {
            return self.submit(request, cx);
        }
        cx.counters.requests_limited += 1;
        Ok(())
    }

    /// Submits those that were held and are due.
    pub(in crate::engine) fn release_held(&mut self, cx: &mut Cx<'_>) {
        while let Some(held) = self.requests.limiter.next(cx.now) {
            self.release(held, cx);
        }
    }

    /// Submits all that were held.
    pub(in crate::engine) fn release_all_held(&mut self, cx: &mut Cx<'_>) {
        while let Some(held) = self.requests.limiter.next_anyway() {
            self.release(held, cx);
        }
    }

    fn release(&mut self, (request, came): (Request, Nanos), cx: &mut Cx<'_>) {
        let status = self.check(&request, cx);
        if !status.is_ok() {
            return self.refuse(request, status, cx);
        }
        self.requests.came = Some(came);
        self.start(&request, cx);
        self.requests.came = None;
    }
}
