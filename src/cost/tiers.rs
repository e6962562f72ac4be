//! What traffic costs: prices a GB that change with the month's volume.
//!
//! Each price holds for the part of the volume that lies in its tier (a marginal price), so
//! the cost never jumps at a border. 1 GB is 10^9 bytes, 1 TB is 1000 GB.

use anyhow::ensure;
use serde::Serialize;

/// Enough for any provider's list.
const TIERS_MAX: usize = 64;

/// Amounts that people enter: prices, CPU seconds a GB. More than this is a mistake.
pub const AMOUNT_MAX: f64 = 1e6;

const GB_PER_TB: f64 = 1000.0;

/// Tiers of one month, at least one; borders rise, and the last has none.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Tiers(Vec<Tier>);

/// What lies between the border below and this one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Tier {
    /// Its upper border, as TB a month; infinite (`null` in JSON) in the last tier.
    pub up_to_tb: f64,
    /// Price of a GB.
    pub per_gb: f64,
}

impl Tiers {
    /// Tiers of `(upper border in TB, price of a GB)`, the cheapest volume first. An error counts them
    /// from 1.
    pub fn new(pairs: &[(f64, f64)]) -> anyhow::Result<Self> {
        let count = pairs.len();
        ensure!(
            (1..=TIERS_MAX).contains(&count),
            "{count} tiers: expected 1 to {TIERS_MAX}"
        );
        let mut below_tb = 0.0;
        let mut tiers = Vec::with_capacity(pairs.len());
        for (tier, &(up_to_tb, per_gb)) in (1..).zip(pairs) {
            ensure!(
                up_to_tb > below_tb,
                "tier {tier} ends at or below the end of the one before, or at no number"
            );
            ensure!(
                up_to_tb.is_infinite() == (tier == count),
                "tier {tier}: the last tier ends at inf, and no other does"
            );
            ensure!(
                is_amount(per_gb),
                "tier {tier}: a price is a number from 0 to {AMOUNT_MAX}"
            );
            tiers.push(Tier { up_to_tb, per_gb });
            below_tb = up_to_tb;
        }
        Ok(Self(tiers))
    }

    /// One price for all.
    pub fn flat(per_gb: f64) -> anyhow::Result<Self> {
        Self::new(&[(f64::INFINITY, per_gb)])
    }

    /// What `gb` in one month cost.
    pub fn cost(&self, gb: f64) -> f64 {
        let mut below_gb = 0.0;
        let mut cost = 0.0;
        for tier in &self.0 {
            let up_to_gb = tier.up_to_tb * GB_PER_TB;
            cost += (gb.min(up_to_gb) - below_gb).max(0.0) * tier.per_gb;
            below_gb = up_to_gb;
        }
        cost
    }

    /// The tiers, the lowest volume first.
    pub fn as_slice(&self) -> &[Tier] {
        &self.0
    }
}

/// Whether a number can be a price or an amount of CPU time.
pub fn is_amount(number: f64) -> bool {
    (0.0..=AMOUNT_MAX).contains(&number)
}

#[cfg(test)]
pub mod tests {
    use proptest::prelude::*;

    use super::*;

    const AWS: [(f64, f64); 4] = [
        (10.0, 0.09),
        (50.0, 0.085),
        (150.0, 0.07),
        (f64::INFINITY, 0.05),
    ];

    #[test]
    fn volumes_cost_what_they_cost_by_hand() {
        let tiers = Tiers::new(&AWS).expect("tiers");
        for (tb, cost) in [
            (0.0, 0.0),
            (1.0, 90.0),
            (10.0, 900.0),
            // 900 + 10,000 × 0.085
            (20.0, 1750.0),
            // 900 + 40,000 × 0.085
            (50.0, 4300.0),
            // 4300 + 100,000 × 0.07
            (150.0, 11_300.0),
            // 11,300 + 850,000 × 0.05
            (1000.0, 53_800.0),
        ] {
            assert!((tiers.cost(tb * 1e3) - cost).abs() < 1e-6, "{tb} TB");
        }
        let flat = Tiers::flat(0.02).expect("a price");
        assert!((flat.cost(9100.0) - 182.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_no_list_of_tiers_says_where() {
        const INF: f64 = f64::INFINITY;
        for (pairs, part) in [
            (&[][..], "0 tiers: expected"),
            (&[(INF, 0.1); 65], "65 tiers: expected"),
            (&[(10.0, 0.1)], "tier 1: the last tier"),
            (&[(INF, 0.1), (INF, 0.1)], "tier 1: the last tier"),
            (&[(9.0, 0.1), (9.0, 0.1)], "tier 2 ends at or below"),
            (&[(-1.0, 0.1)], "tier 1 ends at or below"),
            (&[(0.0, 0.1)], "tier 1 ends at or below"),
            (&[(f64::NAN, 0.1)], "tier 1 ends at or below"),
            (&[(-INF, 0.1)], "tier 1 ends at or below"),
            (&[(INF, f64::NAN)], "tier 1: a price"),
            (&[(INF, INF)], "tier 1: a price"),
            (&[(INF, 1e7)], "tier 1: a price"),
            (&[(1.0, 0.1), (INF, -0.1)], "tier 2: a price"),
        ] {
            let error = Tiers::new(pairs).expect_err(part).to_string();
            assert!(error.starts_with(part), "{pairs:?}: {error}");
        }
    }

    /// Any tiers: finite ones of some width in GB, and the last.
    pub fn any_tiers() -> impl Strategy<Value = Tiers> {
        let finite = prop::collection::vec((1u32..100_000, 0.0..1.0f64), 0..8);
        (finite, 0.0..1.0f64).prop_map(|(finite, last)| {
            let mut up_to_gb = 0;
            let mut pairs: Vec<_> = finite
                .into_iter()
                .map(|(width_gb, per_gb)| {
                    up_to_gb += width_gb;
                    (f64::from(up_to_gb) / 1e3, per_gb)
                })
                .collect();
            pairs.push((f64::INFINITY, last));
            Tiers::new(&pairs).expect("rising borders")
        })
    }

    proptest! {
        /// The slow twin: each GB at the price of the tier that it lies in.
        #[test]
        fn it_is_the_sum_of_each_gb(tiers in any_tiers(), gb in 0u32..20_000) {
            let price = |gb: u32| {
                let middle = f64::from(gb) + 0.5;
                let mut tiers = tiers.as_slice().iter();
                tiers.find(|tier| middle < tier.up_to_tb * 1e3).expect("the last has no end").per_gb
            };
            let sum: f64 = (0..gb).map(price).sum();
            prop_assert!((tiers.cost(f64::from(gb)) - sum).abs() < 1e-6);
        }
    }
}
