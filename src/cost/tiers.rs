//! What traffic costs: prices a GB that change with the month's volume.
//!
//! Each price holds for the part of the volume that lies in its tier (a marginal price), so
//! the cost never jumps at a border. 1 GB is 10^9 bytes, 1 TB is 1000 GB.

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

/// Why a list of pairs is not a list of tiers. Tiers are counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TiersError {
    /// Not one, or far too many.
    #[error("{count} tiers: expected 1 to {TIERS_MAX}")]
    Count {
        /// How many.
        count: usize,
    },
    /// A border that is not above the one below it.
    #[error("tier {tier} ends at or below the end of the one before, or at no number")]
    Border {
        /// Which.
        tier: usize,
    },
    /// A border that is infinite too early, or finite at the end.
    #[error("tier {tier}: the last tier ends at inf, and no other does")]
    End {
        /// Which.
        tier: usize,
    },
    /// A price that is none.
    #[error("tier {tier}: a price is a number from 0 to {AMOUNT_MAX}")]
    Price {
        /// Which.
        tier: usize,
    },
}

impl Tiers {
    /// Tiers of `(upper border in TB, price of a GB)`, the cheapest volume first.
    ///
    /// # Errors
    /// Where [`TiersError`] says.
    pub fn new(pairs: &[(f64, f64)]) -> Result<Self, TiersError> {
        if pairs.is_empty() || pairs.len() > TIERS_MAX {
            return Err(TiersError::Count { count: pairs.len() });
        }
        let mut below_tb = 0.0;
        let mut tiers = Vec::with_capacity(pairs.len());
        for (tier, &(up_to_tb, per_gb)) in (1..).zip(pairs) {
            if up_to_tb.is_nan() || up_to_tb <= below_tb {
                return Err(TiersError::Border { tier });
            }
            if up_to_tb.is_infinite() != (tier == pairs.len()) {
                return Err(TiersError::End { tier });
            }
            if !is_amount(per_gb) {
                return Err(TiersError::Price { tier });
            }
            tiers.push(Tier { up_to_tb, per_gb });
            below_tb = up_to_tb;
        }
        Ok(Self(tiers))
    }

    /// One price for all.
    ///
    /// # Errors
    /// [`TiersError::Price`].
    pub fn flat(per_gb: f64) -> Result<Self, TiersError> {
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
        for (pairs, error) in [
            (&[][..], TiersError::Count { count: 0 }),
            (&[(INF, 0.1); 65], TiersError::Count { count: 65 }),
            (&[(10.0, 0.1)], TiersError::End { tier: 1 }),
            (&[(INF, 0.1), (INF, 0.1)], TiersError::End { tier: 1 }),
            (&[(9.0, 0.1), (9.0, 0.1)], TiersError::Border { tier: 2 }),
            (&[(-1.0, 0.1)], TiersError::Border { tier: 1 }),
            (&[(0.0, 0.1)], TiersError::Border { tier: 1 }),
            (&[(f64::NAN, 0.1)], TiersError::Border { tier: 1 }),
            (&[(-INF, 0.1)], TiersError::Border { tier: 1 }),
            (&[(INF, f64::NAN)], TiersError::Price { tier: 1 }),
            (&[(INF, INF)], TiersError::Price { tier: 1 }),
            (&[(INF, 1e7)], TiersError::Price { tier: 1 }),
            (&[(1.0, 0.1), (INF, -0.1)], TiersError::Price { tier: 2 }),
        ] {
            assert_eq!(Tiers::new(pairs), Err(error), "{pairs:?}");
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
        #[test]
        fn more_traffic_never_costs_less(tiers in any_tiers(), a in 0.0..1e6f64, b in 0.0..1e6f64) {
            prop_assert!(tiers.cost(a.min(b)) <= tiers.cost(a.max(b)));
        }

        #[test]
        fn the_cost_does_not_jump_at_borders(tiers in any_tiers(), step in 1e-6..1.0f64) {
            let dearest = tiers.as_slice().iter().map(|tier| tier.per_gb).fold(0.0, f64::max);
            for tier in &tiers.as_slice()[..tiers.as_slice().len() - 1] {
                let border = tier.up_to_tb * 1e3;
                let rise = tiers.cost(border + step) - tiers.cost(border - step);
                prop_assert!(rise <= 2.0 * step * dearest + 1e-6, "{rise} at {border} GB");
            }
        }

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
