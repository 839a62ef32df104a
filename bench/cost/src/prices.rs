//! What requests cost.

use serde::Serialize;

/// Dollars for a PUT, COPY, POST or LIST: S3 Standard, us-east-1 and eu-west-1.
/// Source: aws.amazon.com/s3/pricing, "Requests & data retrievals", as of November 2026.
pub const TIER_1: f64 = 0.005 / 1_000.0;

/// Dollars for a GET or HEAD, from the same table. A conditional GET that ends in 304 counts as
/// one: the list of answers that S3 does not bill has no 304.
pub const TIER_2: f64 = 0.0004 / 1_000.0;

/// Hours of the month that prices are given for: thirty days.
pub const HOURS: f64 = 720.0;

/// Requests by the kind a store bills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// Puts under `If-None-Match: *`, also those that found the name taken.
    pub create: u64,
    /// Replacing puts: serials and statuses.
    pub put: u64,
    /// GETs that brought an object or a 404.
    pub get: u64,
    /// GETs that ended in 304.
    pub not_modified: u64,
    /// Pages of listings, of up to 1,000 keys each.
    pub list: u64,
}

impl Requests {
    /// All of them.
    pub fn sum(&self) -> u64 {
        self.create + self.put + self.get + self.not_modified + self.list
    }

    /// Their price in dollars.
    pub fn dollars(&self) -> f64 {
        let dear = self.create + self.put + self.list;
        dear as f64 * TIER_1 + (self.get + self.not_modified) as f64 * TIER_2
    }

    /// What was sent since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            create: self.create - earlier.create,
            put: self.put - earlier.put,
            get: self.get - earlier.get,
            not_modified: self.not_modified - earlier.not_modified,
            list: self.list - earlier.list,
        }
    }
}

impl std::iter::Sum for Requests {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            create: sum.create + one.create,
            put: sum.put + one.put,
            get: sum.get + one.get,
            not_modified: sum.not_modified + one.not_modified,
            list: sum.list + one.list,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table that everybody computes first: a month of one GET in two seconds.
    #[test]
    fn a_month_of_polls_every_two_seconds_costs_half_a_dollar() {
        let polls = Requests { not_modified: 1_296_000, ..Requests::default() };
        assert!((polls.dollars() - 0.5184).abs() < 1e-9);
        let lists = Requests { list: 1_296_000, ..Requests::default() };
        assert!((lists.dollars() - 6.48).abs() < 1e-9);
    }
}
