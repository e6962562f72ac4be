//! Lists of parts: the rows of a root, column by column.

use crate::{FormatError, Input, Violation, limits, part::PartKind, put_varint, put_zigzag};

/// Where a part is, and how it is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartPlace {
    /// Items in it.
    pub items: u32,
    /// Where it begins.
    pub offset: u64,
    /// Its stored bytes.
    pub stored_bytes: u32,
    /// Its plain bytes.
    pub plain_bytes: u32,
    /// Digest of the plain part, or of a sealed one as stored: 20 bytes of a chunk part's, else 12 and
    /// zeros.
    pub digest: [u8; 20],
}

/// Further columns of a row, as many as its kind has.
pub type Further = [u64; 5];

/// A row of the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartRow {
    /// Where the part is.
    pub place: PartPlace,
    /// What the parts before it have of items (0) and of each further column (1 to 5). For frame
    /// parts, 1 is where the first frame begins.
    pub before: [u64; 6],
}

/// The rows of parts of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartList {
    rows: Vec<PartRow>,
    /// What all parts have together, as in [`PartRow::before`].
    pub(super) total: [u64; 6],
}

impl PartList {
    /// Its rows.
    #[must_use]
    pub fn rows(&self) -> &[PartRow] {
        &self.rows
    }

    /// Items of all parts.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.total[0]
    }

    /// Stored bytes of all parts.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        let rows = self.rows.iter();
        rows.map(|row| u64::from(row.place.stored_bytes)).sum()
    }

    /// The sum of a further column, from 1 on, over all parts.
    pub fn total(&self, column: usize) -> u64 {
        self.total[column]
    }

    /// The row that has this item, and how many items are before it there.
    pub fn item(&self, number: u64) -> Option<(usize, usize)> {
        let row = self.find(0, number)?;
        Some((row, (number - self.rows[row].before[0]) as usize))
    }

    /// What all rows up to and with this one have, as in [`PartRow::before`].
    pub fn after(&self, row: usize) -> [u64; 6] {
        self.rows
            .get(row + 1)
            .map_or(self.total, |next| next.before)
    }

    /// The row in which item, or column, `column` reaches `at`: the last that begins at or before
    /// it, if there is more of it than that.
    pub fn find(&self, column: usize, at: u64) -> Option<usize> {
        if at >= self.total[column] {
            return None;
        }
        let beyond = self.rows.partition_point(|row| row.before[column] <= at);
        beyond.checked_sub(1)
    }

    /// Adds a part; `further` is what its kind's further columns say of it.
    pub fn push(
        &mut self,
        kind: PartKind,
        place: PartPlace,
        further: Further,
    ) -> Result<(), FormatError> {
        let (before, total) = added(kind, self.total, place.items, further)?;
        self.rows.push(PartRow { place, before });
        self.total = total;
        Ok(())
    }

    pub(super) fn put(&self, kind: PartKind, is_sealed: bool, out: &mut Vec<u8>) {
        put_varint(out, self.rows.len() as u64);
        for row in &self.rows {
            put_varint(out, row.place.items.into());
        }
        if !is_sealed {
            self.put_places(out);
        }
        for row in &self.rows {
            put_varint(out, row.place.plain_bytes.into());
        }
        if !is_sealed {
            self.put_digests(kind, out);
        }
        for column in 1..=further_columns(kind) {
            let mut end = 0;
            for (number, row) in self.rows.iter().enumerate() {
                let after = self.after(number);
                match (kind, column) {
                    (PartKind::Frames, 1) => {
                        put_zigzag(out, end, row.before[1]);
                        end = row.before[1] + (after[2] - row.before[2]);
                    }
                    _ => put_varint(out, after[column] - row.before[column]),
                }
            }
        }
    }

    fn put_places(&self, out: &mut Vec<u8>) {
        let mut end = 0;
        for PartRow { place, .. } in &self.rows {
            put_zigzag(out, end, place.offset);
            end = place.offset + u64::from(place.stored_bytes);
        }
        for row in &self.rows {
            put_varint(out, row.place.stored_bytes.into());
        }
    }

    fn put_digests(&self, kind: PartKind, out: &mut Vec<u8>) {
        for row in &self.rows {
            out.extend_from_slice(&row.place.digest[..digest_bytes(kind)]);
        }
    }

    /// What the root says of sealed parts: all that is needed to fetch and to check them.
    pub(super) fn put_sealed(&self, kind: PartKind, out: &mut Vec<u8>) {
        put_varint(out, self.rows.len() as u64);
        self.put_places(out);
        self.put_digests(kind, out);
    }

    /// Parses a list; of one whose parts are sealed, what the root does not say: `sealed`.
    pub(super) fn parse(
        kind: PartKind,
        sealed: Option<&Self>,
        input: &mut Input<'_>,
    ) -> Result<Self, FormatError> {
        let row_bytes = match sealed {
            Some(_) => 2,
            None => 4 + digest_bytes(kind),
        };
        let rows = row_count(row_bytes, input)?;
        let mut rows = match sealed {
            Some(sealed) if sealed.rows.len() as u64 == rows => sealed.places(),
            Some(_) => {
                return Err(FormatError::Invalid(Violation::OtherParts));
            }
            None => vec![PartRow::default(); rows as usize],
        };
        for PartRow { place, .. } in &mut rows {
            let items = input.varint()?;
            let items_max = kind.items_max() as u64;
            FormatError::check_limit("the number of items of a part", items, items_max)?;
            if items == 0 {
                return Err(FormatError::Invalid(Violation::EmptyPart));
            }
            place.items = items as u32;
        }
        if sealed.is_none() {
            parse_places(&mut rows, input)?;
        }
        for PartRow { place, .. } in &mut rows {
            let plain_bytes = input.varint()?;
            FormatError::check_limit("a part", plain_bytes, limits::PART_BYTES_MAX as u64)?;
            place.plain_bytes = plain_bytes as u32;
        }
        if sealed.is_none() {
            parse_digests(kind, &mut rows, input)?;
        }
        for column in 0..further_columns(kind) {
            for row in &mut rows {
                // What is in the part, until it is summed up.
                row.before[1 + column] = match (kind, column) {
                    (PartKind::Frames, 0) => input.zigzag()? as u64,
                    _ => input.varint()?,
                };
            }
        }
        let mut total = [0; 6];
        for PartRow { place, before } in &mut rows {
            let [_, further @ ..] = *before;
            (*before, total) = added(kind, total, place.items, further)?;
        }
        Ok(Self { rows, total })
    }

    /// Parses what the root says of sealed parts: where they are, and their digests. They have no items
    /// until the private root says how many.
    pub(super) fn parse_sealed(kind: PartKind, input: &mut Input<'_>) -> Result<Self, FormatError> {
        let rows = row_count(2 + digest_bytes(kind), input)?;
        let mut rows = vec![PartRow::default(); rows as usize];
        parse_places(&mut rows, input)?;
        parse_digests(kind, &mut rows, input)?;
        let total = [0; 6];
        Ok(Self { rows, total })
    }

    /// Its rows, of which no more is known than where they are.
    fn places(&self) -> Vec<PartRow> {
        let rows = self.rows.iter();
        rows.map(|row| PartRow {
            place: row.place,
            before: [0; 6],
        })
        .collect()
    }
}

/// The number of rows, which have so many bytes at least.
fn row_count(row_bytes: usize, input: &mut Input<'_>) -> Result<u64, FormatError> {
    let rows = input.varint()?;
    let rows_max = input.len() / row_bytes;
    FormatError::check_limit("the number of rows of a root", rows, rows_max as u64)?;
    Ok(rows)
}

/// The sums before a part and behind it, of which `total` is what all before it come to.
fn added(
    kind: PartKind,
    total: [u64; 6],
    items: u32,
    further: Further,
) -> Result<([u64; 6], [u64; 6]), FormatError> {
    const TOO_MUCH: FormatError = FormatError::Invalid(Violation::Sums);
    let mut before = total;
    let mut after = before;
    after[0] = after[0].checked_add(items.into()).ok_or(TOO_MUCH)?;
    if kind == PartKind::Frames {
        // Both columns concern where frames are: the first one's begin, and their bytes.
        before[1] = before[1]
            .checked_add_signed(further[0] as i64)
            .ok_or(TOO_MUCH)?;
        after[1] = before[1].checked_add(further[1]).ok_or(TOO_MUCH)?;
        after[2] = after[2].checked_add(further[1]).ok_or(TOO_MUCH)?;
    } else {
        for (sum, more) in after[1..].iter_mut().zip(further) {
            *sum = sum.checked_add(more).ok_or(TOO_MUCH)?;
        }
    }
    Ok((before, after))
}

fn parse_places(rows: &mut [PartRow], input: &mut Input<'_>) -> Result<(), FormatError> {
    for PartRow { place, .. } in &mut *rows {
        // A distance, until it is known from where.
        place.offset = input.zigzag()? as u64;
    }
    let mut end = 0_u64;
    for PartRow { place, .. } in rows {
        let stored_bytes = input.varint()?;
        let limit = limits::PART_BYTES_MAX + limits::SEAL_BYTES_MAX;
        FormatError::check_limit("a part", stored_bytes, limit as u64)?;
        place.stored_bytes = stored_bytes as u32;
        let offset = end.checked_add_signed(place.offset as i64);
        let next = offset.and_then(|offset| offset.checked_add(stored_bytes));
        let (Some(offset), Some(next)) = (offset, next) else {
            return Err(FormatError::Invalid(Violation::PartPlace));
        };
        place.offset = offset;
        end = next;
    }
    Ok(())
}

fn parse_digests(
    kind: PartKind,
    rows: &mut [PartRow],
    input: &mut Input<'_>,
) -> Result<(), FormatError> {
    let digest_bytes = digest_bytes(kind);
    for PartRow { place, .. } in rows {
        place.digest[..digest_bytes].copy_from_slice(input.bytes(digest_bytes)?);
    }
    Ok(())
}

/// Bytes of the digest in a row.
pub fn digest_bytes(kind: PartKind) -> usize {
    match kind {
        PartKind::Chunks => 20,
        _ => 12,
    }
}

fn further_columns(kind: PartKind) -> usize {
    match kind {
        PartKind::Chunks | PartKind::Keys => 0,
        PartKind::Lengths => 1,
        PartKind::Frames => 2,
        PartKind::References => 3,
        PartKind::WeaveIndex => 5,
    }
}
