#!/usr/bin/env python3
"""Reads a CZIP archive by docs/czip-format.md and nothing else.

    second_reader.py ARCHIVE [DIR] [--archive-key=HEX] [--group-secret=HEX]

Prints a line an entry, with the BLAKE3 of each file. With DIR, makes the entries in there too. Of an
encrypted archive whose key is not given it checks all that can be, and prints nothing.
Every digest, sum and limit that the page names is checked; what does not fit ends the program with
`refused: WHY` and status 1.

It is the page's test, not a tool: it holds whole streams in memory, and hashes slowly without the
module `blake3`. It needs Python's standard library and the program `zstd`. The keys section, an age
file, is not opened: `age -d` does that, and gives the archive key.
"""

import bz2
import os
import struct
import subprocess
import sys
import tempfile
import zlib

# The tree that this lies in stays as it is.
sys.dont_write_bytecode = True

from blake3_digests import derive, digest
from gcm_siv import opened

MAGIC = b"\x89CZIP\r\n\x1a"
FOOTER, TRAILER, SHARED, WOVEN, ENCRYPTED, PADDED, GROUP_SECRET = (1 << bit for bit in range(7))
CONTENT, WEAVE, FIELDS, TIMES, CATALOG = STREAMS = range(5)
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
HEADER_BYTES, PART_BYTES, ROOT_BYTES, RECORD_BYTES = 256, 64 * KIB, GIB, 64 * KIB
WINDOW_BYTES, CHUNK_BYTES, FRAME_BYTES = 32 * MIB, 8 * MIB, 16 * MIB
WORD = (1 << 64) - 1


class Refused(Exception):
    """What the page does not allow."""


def need(holds, why):
    """Refuses where the page says that something holds, and it does not."""
    if not holds:
        raise Refused(why)


# ---------------------------------------------------------------------------------------- numbers


class Bytes:
    """Takes numbers and bytes off the front of a string."""

    def __init__(self, data, what):
        self.data, self.at, self.what = data, 0, what

    def take(self, count):
        need(count <= len(self.data) - self.at, f"{self.what}: ends too early")
        self.at += count
        return self.data[self.at - count : self.at]

    def varint(self, least=0, most=WORD):
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 127) << shift
            need(number <= WORD and (byte or not shift), f"{self.what}: no varint")
            if byte < 128:
                break
            shift += 7
        need(least <= number <= most, f"{self.what}: {number} is out of bounds")
        return number

    def zigzag(self):
        number = self.varint()
        return number >> 1 ^ -(number & 1)

    def column(self, rows, read):
        return [read() for _ in range(rows)]

    def until_zero(self):
        end = self.data.find(b"\0", self.at)
        need(end >= 0, f"{self.what}: no zero byte")
        text = self.take(end - self.at)
        self.at += 1
        return text

    def ended(self):
        return self.at == len(self.data)

    def end(self):
        need(self.ended(), f"{self.what}: {len(self.data) - self.at} bytes too many")


# ----------------------------------------------------------------------------------------- header


class Header:
    """The 256 bytes of which there are one or two."""

    def __init__(self, data):
        need(len(data) == HEADER_BYTES and data[:8] == MAGIC, "not a CZIP archive")
        need(digest(data[:240], 16) == data[240:], "header: digest")
        (version, length, self.flags, chunker, method, self.encryption, zero, average, shortest, self.chunk_max,
         self.frame_max, zeros) = struct.unpack("<HHI4B5I", data[8:40])
        need(version == 1 and length == HEADER_BYTES, f"version {version}")
        need(self.flags < 128 and not zero and not zeros and not any(data[228:240]), "header: unknown flags or fields")
        need(self.flags & ENCRYPTED or not any(data[184:228]), "header: keys, and no encryption")
        need(not self.flags & ENCRYPTED or not any(data[48:80] + data[96:128]), "header: what is private")
        need(chunker < 3 and method < 4 and shortest <= average <= self.chunk_max, "header: how it was made")
        need(bool(self.flags & ENCRYPTED) == (self.encryption == 1) and self.encryption < 2, "header: encryption")
        need(1 <= self.chunk_max <= CHUNK_BYTES and self.chunk_max <= self.frame_max <= FRAME_BYTES, "header: limits")
        (self.archive_bytes, self.plain_bytes, self.unique_bytes, self.stored_bytes, self.entries, self.chunks,
         self.references) = struct.unpack("<7Q", data[40:96])
        self.content_digest = data[96:128]
        (self.root_at, self.root_stored, self.root_plain, self.private_stored,
         self.private_plain) = struct.unpack("<Q4I", data[128:152])
        self.root_digest = data[152:184]
        self.keys_at, self.keys_bytes, self.keys_digest = *struct.unpack("<QI", data[184:196]), data[196:228]
        need(self.keys_bytes <= 256 * KIB, "keys: length")
        self.private_copy = data[48:80] + data[96:128]
        self.vouched = data[:152]
        self.encrypted, self.padded = bool(self.flags & ENCRYPTED), bool(self.flags & PADDED)
        self.of_group = bool(self.flags & GROUP_SECRET)
        need(self.encrypted or not (self.padded or self.of_group), "header: flags without encryption")
        self.shared, self.woven = bool(self.flags & SHARED), bool(self.flags & WOVEN)

    def take_summary(self, data):
        """What the private root says of an encrypted archive."""
        self.plain_bytes, self.unique_bytes, self.stored_bytes, self.entries = struct.unpack("<4Q", data[:32])
        self.content_digest = data[32:]


# ---------------------------------------------------------------------------------- stored things


def unzstd(data, plain_bytes_max, base=None):
    """The plain bytes of one zstd frame, which must say how many they are."""
    need(data[:4] == b"\x28\xb5\x2f\xfd" and len(data) > 5, "zstd: no frame")
    descriptor = data[4]
    single, at = descriptor >> 5 & 1, 5
    if not single:
        exponent, mantissa = data[5] >> 3, data[5] & 7
        need((8 + mantissa) << (7 + exponent) <= WINDOW_BYTES, "zstd: window")
        at = 6
    at += (0, 1, 2, 4)[descriptor & 3]
    size_bytes = (single, 2, 4, 8)[descriptor >> 6]
    need(size_bytes, "zstd: no content size")
    size = int.from_bytes(data[at : at + size_bytes], "little") + (256 if size_bytes == 2 else 0)
    need(size <= plain_bytes_max, "zstd: too long")
    # What --patch-from does to decompress is ZSTD_DCtx_refPrefix.
    with tempfile.NamedTemporaryFile() as prefix:
        prefix.write(base or b"")
        prefix.flush()
        command = ["zstd", "-dcq", "--long=25"] + (["--patch-from=" + prefix.name] if base is not None else [])
        done = subprocess.run(command, input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    need(done.returncode == 0, "zstd: " + done.stderr.decode(errors="replace").strip())
    need(len(done.stdout) == size, "zstd: more than one frame")
    return done.stdout


def packed(data, plain_bytes):
    """A root or a part: as it is, or one zstd frame."""
    if len(data) != plain_bytes:
        data = unzstd(data, plain_bytes)
    need(len(data) == plain_bytes, "a part or root of another length than its row says")
    return data


def frame_text(stored, base, frame_max):
    """The plain bytes of a frame: a byte for its method, and what the method made."""
    method, payload = stored[0], stored[1:]
    need(base is None or method == 1, "a base, and a method that has none")
    if method == 0:
        plain = payload
    elif method == 1:
        plain = unzstd(payload, frame_max, base)
    elif method in (2, 3):
        machine = zlib.decompressobj(16 + zlib.MAX_WBITS) if method == 2 else bz2.BZ2Decompressor()
        try:
            plain = machine.decompress(payload, frame_max + 1)
        except (zlib.error, OSError) as error:
            raise Refused(f"frame: {error}") from error
        need(machine.eof and not machine.unused_data, "frame: not one gzip member or bzip2 stream")
    else:
        raise Refused(f"frame: method {method}")
    need(len(plain) <= frame_max, "frame: longer than the header says")
    return plain


# ------------------------------------------------------------------------------------------ table


class Row:
    """A part, as a list of the root or the private root says where and what it is."""

    def __init__(self, archive, items, plain, place, nonce, further):
        self.archive, self.items, self.plain, self.nonce, self.further = archive, items, plain, nonce, further
        self.at, self.stored, self.check = place

    def read(self, what):
        if self.nonce is not None:
            text = packed(self.archive.opened(checked(self.archive, self.at, self.stored, self.check), self.nonce), self.plain)
        else:
            text = packed(self.archive.slice(self.at, self.stored), self.plain)
            need(digest(text, len(self.check)) == self.check, f"{what}: digest")
        return Bytes(text, what)


def checked(archive, at, count, check):
    """A sealed part as stored."""
    stored = archive.slice(at, count)
    need(digest(stored, 12) == check, "sealed part: digest")
    return stored


def places(source, count):
    """Where parts are, and how long they are as stored."""
    gaps, stored = source.column(count, source.zigzag), source.column(count, source.varint)
    found, end = [], 0
    for gap, length in zip(gaps, stored):
        need(end + gap >= 0, "a part before the archive")
        found.append((end + gap, length))
        end += gap + length
    return found


def sealed(source):
    """A sealed list: for each part where it is, how long it is as stored, and its digest."""
    count = source.varint()
    found = places(source, count)
    checks = source.column(count, lambda: source.take(12))
    return [(at, length, check) for (at, length), check in zip(found, checks)]


def rows(archive, source, digest_bytes, further=(), known=None, nonce=None):
    """A list, column by column; `further` names how the columns of its kind are read. Of sealed parts the places
    are `known`, and `nonce` is that of the first."""
    count = source.varint()
    items = source.column(count, lambda: source.varint(1))
    need(known is None or len(known) == count, "private root: not the parts of the root")
    found = places(source, count) if known is None else known
    plain = source.column(count, lambda: source.varint(0, PART_BYTES))
    if known is None:
        checks = source.column(count, lambda: source.take(digest_bytes))
        found = [(at, length, check) for (at, length), check in zip(found, checks)]
    columns = [source.column(count, read) for read in further]
    rows = zip(items, plain, found, range(count))
    nonces = [None if nonce is None else nonce + struct.pack("<HQ", 0, row) for row in range(count)]
    return [
        Row(archive, items, plain, place, nonces[row], [column[row] for column in columns])
        for items, plain, place, row in rows
    ]


def padme(length):
    """The length that is hidden among others."""
    e = length.bit_length() - 1
    kept = e - e.bit_length()
    return length if e < 1 or kept <= 0 else -(-length >> kept) << kept


class Stream:
    """One of the five: its lists, then its chunks, then its bytes."""

    def __init__(self, archive):
        self.archive = archive
        self.header = archive.header
        self.chunks = self.frames = self.lengths = self.references = self.keys = ()
        self.sealed_lengths = self.sealed_references = self.sealed_keys = []

    def read_names(self):
        self.names = []
        for row in self.chunks:
            part = row.read("chunk part")
            self.names += part.column(row.items, lambda: part.take(20))
            part.end()
        need(len(set(self.names)) == len(self.names), "a chunk twice in a stream")

    def read_frames(self):
        """What is stored of each frame, checked, and the number of its base."""
        self.stored, self.bases, end = [], [], 0
        for row in self.frames:
            part, (gap, total) = row.read("frame part"), row.further
            sizes = part.column(row.items, lambda: part.varint(1))
            gaps = part.column(row.items, part.varint)
            back = [0] * row.items if self.header.shared else part.column(row.items, part.varint)
            checks = part.column(row.items, lambda: part.take(12))
            part.end()
            need(sum(sizes) == total and gaps[0] == 0, "frame part: sums")
            at = end + gap
            # The row after counts from here, whatever lies between this part's frames.
            end = at + total
            for i in range(row.items):
                at += gaps[i]
                need(at >= 0, "a frame before the archive")
                stored = self.archive.slice(at, sizes[i])
                need(digest(stored, 12) == checks[i], "frame: digest")
                at += sizes[i]
                number = len(self.stored)
                need(back[i] <= number, "a base before the first frame")
                base = number - back[i] if back[i] else None
                need(base is None or self.bases[base] is None, "a base with a base")
                self.stored.append(stored)
                self.bases.append(base)

    def opened(self):
        """The texts of sealed frames."""
        need([row.items for row in self.keys] == [row.items for row in self.frames], "key parts: rows")
        keys = []
        for row in self.keys:
            part = row.read("key part")
            keys += part.column(row.items, lambda: part.take(32))
            part.end()
        for key, stored in zip(keys, self.stored):
            text = opened(key, bytes(12), stored)
            need(text is not None, "frame: not what was sealed")
            known = self.archive.frame_key
            need(known is None or digest(text, key=known) == key, "frame: another's key")
            if self.header.padded:
                end = len(text.rstrip(b"\0")) - 1
                need(end >= 0 and text[end] == 128 and padme(end + 1) == len(text), "frame: padding")
                text = text[:end]
            yield text

    def open_frames(self):
        self.frame_plain = []
        stored = self.opened() if self.header.encrypted else self.stored
        for stored, base in zip(stored, self.bases):
            base = None if base is None else self.frame_plain[base]
            self.frame_plain.append(frame_text(stored, base, self.header.frame_max))

    def read_lengths(self):
        """The plain bytes of each chunk, checked by its name."""
        self.plain = []
        need([row.items for row in self.lengths] == [row.items for row in self.chunks], "length parts: rows")
        for row in self.lengths:
            part, first = row.read("length part"), len(self.plain)
            lengths = part.column(row.items, lambda: part.varint(1, self.header.chunk_max))
            need(sum(lengths) == row.further[0], "length part: sums")
            if self.header.shared:
                places = [(first + i, 0) for i in range(row.items)]
            else:
                places, frame = [], 0
                runs = part.varint()
                counts = part.column(runs, lambda: part.varint() + 1)
                steps = part.column(runs, part.zigzag)
                starts = part.column(runs, part.varint)
                for count, step, at in zip(counts, steps, starts):
                    frame += step
                    need(count <= row.items - len(places), "length part: runs")
                    for _ in range(count):
                        places.append((frame, at))
                        at += lengths[len(places) - 1]
            part.end()
            need(len(places) == row.items, "length part: runs")
            for length, (frame, at) in zip(lengths, places):
                need(0 <= frame < len(self.frame_plain), "a chunk in no frame")
                whole = self.frame_plain[frame]
                need(at + length <= len(whole), "a chunk beyond its frame")
                need(not self.header.shared or length == len(whole), "a chunk that is not its frame")
                plain = whole[at : at + length]
                if self.archive.names_key or not self.header.encrypted:
                    name = digest(plain, 20, key=self.archive.names_key)
                    need(name == self.names[len(self.plain)], "chunk: name")
                self.plain.append(plain)

    def read_references(self):
        """The stream's bytes."""
        pieces, fresh, self.occurrences = [], 0, 0
        for row in self.references:
            part, numbers, before = row.read("reference part"), [], fresh
            need(row.items <= 128, "reference part: runs")
            for _ in range(row.items):
                number = part.varint()
                count, kind = number // 4 + 1, number % 4
                need(kind < 3, "reference part: kind")
                need(len(numbers) + count <= row.further[0], "reference part: sums")
                back = part.varint() + 1 if kind else 0
                first = fresh - back
                need(first >= 0, "a reference before the first chunk")
                if kind == 0:
                    fresh += count
                    need(fresh <= len(self.plain), "a reference behind the last chunk")
                if kind == 1:
                    need(count <= back, "a reference to a chunk that is not known yet")
                numbers += [first] * count if kind == 2 else range(first, first + count)
            part.end()
            covered = [self.plain[number] for number in numbers]
            need([len(numbers), sum(map(len, covered)), fresh - before] == row.further, "reference part: sums")
            pieces += covered
            self.occurrences += len(numbers)
        need(fresh == len(self.plain), "a chunk that does not occur")
        self.bytes = b"".join(pieces)

    def check(self):
        """What can be checked without a key."""
        self.read_names()
        self.read_frames()
        for place in self.sealed_lengths + self.sealed_references + self.sealed_keys:
            checked(self.archive, *place)

    def read(self):
        self.check()
        self.open_frames()
        self.read_lengths()
        self.read_references()


class Archive:
    """A whole archive in memory."""

    def __init__(self, data, archive_key=None, group_secret=None):
        self.data = data
        self.header = Header(data[:HEADER_BYTES])
        need(not self.header.flags & TRAILER, "the first header says that it is the last")
        if self.header.flags & FOOTER:
            self.header = Header(data[-HEADER_BYTES:])
            need(self.header.flags & FOOTER and self.header.flags & TRAILER, "the last header is none")
        header = self.header
        need(header.archive_bytes == len(data), "archive: cut short, or longer than it says")
        self.entries, self.private_key, self.names_key, self.frame_key = [], None, None, None
        if header.encrypted:
            need(digest(self.slice(header.keys_at, header.keys_bytes)) == header.keys_digest, "keys: digest")
            if archive_key:
                self.private_key = derive("refrain czip v1 private", archive_key)
            if group_secret or not header.of_group:
                secret = group_secret if header.of_group else b""
                self.names_key = derive("refrain czip v1 name", secret)
                self.frame_key = derive("refrain czip v1 frame", secret)
        self.read_roots()
        if header.encrypted and not archive_key:
            for stream in self.streams:
                stream.check()
            for place in self.sealed_weave_index:
                checked(self, *place)
            return
        for stream in self.streams:
            stream.read()
        need(sum(len(stream.names) for stream in self.streams) == header.chunks, "chunks")
        need(sum(stream.occurrences for stream in self.streams) == header.references, "references")
        need(sum(len(plain) for stream in self.streams for plain in stream.plain) == header.unique_bytes, "unique bytes")
        need(sum(len(stored) for stream in self.streams for stored in stream.stored) == header.stored_bytes, "stored bytes")
        self.plain = Unweaver(self).plain() if header.woven else self.streams[CONTENT].bytes
        need(header.woven or not any(self.streams[i].bytes for i in (WEAVE, FIELDS, TIMES)), "a stream without a weave")
        need(len(self.plain) == header.plain_bytes, "plain content: length")
        need(digest(self.plain) == header.content_digest, "plain content: digest")
        self.entries = read_catalog(self.streams[CATALOG].bytes, self.plain)
        need(len(self.entries) == header.entries, "entries")

    def slice(self, at, count):
        need(0 <= at and at + count <= len(self.data), "something beyond the archive")
        return self.data[at : at + count]

    def opened(self, stored, nonce, vouched=b""):
        """What is sealed with the archive key."""
        text = opened(self.private_key, nonce, stored, vouched)
        need(text is not None, "a private part or root: not what was sealed")
        return text

    def read_roots(self):
        header = self.header
        need(max(header.root_stored, header.root_plain, header.private_stored, header.private_plain) <= ROOT_BYTES, "root: length")
        stored = self.slice(header.root_at, header.root_stored + header.private_stored)
        need(digest(stored) == header.root_digest, "root: digest")
        public, private = stored[: header.root_stored], stored[header.root_stored :]
        root = Bytes(packed(public, header.root_plain), "root")
        self.streams = [Stream(self) for _ in STREAMS]
        for stream in self.streams:
            stream.chunks = rows(self, root, 20)
            stream.frames = rows(self, root, 12, (root.zigzag, root.varint))
            if header.encrypted:
                stream.sealed_lengths, stream.sealed_references, stream.sealed_keys = (sealed(root) for _ in range(3))
        self.sealed_weave_index = sealed(root) if header.encrypted else []
        root.end()
        if not header.encrypted:
            self.read_private_root(packed(private, header.private_plain))
        elif self.private_key:
            private = self.opened(private, bytes(12), digest(header.vouched + public))
            self.read_private_root(packed(private, header.private_plain))

    def read_private_root(self, private):
        private = Bytes(private, "private root")

        def private_rows(kind, stream, known, further=()):
            if not self.header.encrypted:
                return rows(self, private, 12, further)
            return rows(self, private, 12, further, known, bytes([kind, stream]))

        for number, stream in enumerate(self.streams):
            stream.lengths = private_rows(1, number, stream.sealed_lengths, (private.varint,))
            stream.references = private_rows(2, number, stream.sealed_references, (private.varint,) * 3)
            if self.header.encrypted:
                stream.keys = private_rows(3, number, stream.sealed_keys)
        self.weave_index = private_rows(4, 0, self.sealed_weave_index, (private.varint,) * 5)
        copy = private.take(64)
        need(self.header.encrypted or copy == self.header.private_copy, "private root: not what the header says")
        self.header.take_summary(copy)
        private.end()


# ------------------------------------------------------------------------------------------ weave

EXTENDED = b"xgLK"


class Unweaver:
    """Makes the plain content of content, fields and times, as the weave says."""

    def __init__(self, archive):
        streams = archive.streams
        self.weave, self.content, self.fields, self.times = (
            Bytes(streams[i].bytes, name)
            for i, name in ((WEAVE, "weave"), (CONTENT, "content"), (FIELDS, "fields"), (TIMES, "times"))
        )
        self.pieces, self.length, self.most = [], 0, archive.header.plain_bytes
        self.points = self.read_index(archive.weave_index)
        self.new_state()

    def new_state(self):
        self.models, self.top, self.extended = {}, b"", None

    def read_index(self, parts):
        """The restart points: where each is in plain content, weave, content, fields and times."""
        points, at = [], [0] * 5
        for row in parts:
            need(row.items <= 256, "weave index part: items")
            part, before = row.read("weave index part"), list(at)
            steps = [part.column(row.items, part.varint) for _ in range(5)]
            part.end()
            for i in range(row.items):
                points.append(tuple(at))
                at = [place + column[i] for place, column in zip(at, steps)]
            need([b - a for a, b in zip(before, at)] == row.further, "weave index part: sums")
        self.ends = at
        return points

    def append(self, data):
        self.length += len(data)
        need(self.length <= self.most, "weave: more than the header says")
        self.pieces.append(data)

    def zeros(self, count):
        need(count <= self.most - self.length, "weave: more than the header says")
        self.append(bytes(count))

    def places(self):
        return (self.length, self.weave.at, self.content.at, self.fields.at, self.times.at)

    def plain(self):
        expected, anew = list(reversed(self.points)), True
        while True:
            if expected and expected[-1][1] <= self.weave.at:
                need(expected.pop() == self.places() and anew, "weave: a restart point that is none")
            if self.weave.ended():
                break
            operation = self.weave.take(1)[0]
            need(operation <= 6, f"weave: operation {operation}")
            if operation == 6:
                need(not anew, "weave: state begins anew twice")
                self.new_state()
                anew = True
                continue
            anew, count = False, self.weave.varint(1)
            if operation < 3:
                self.append((self.content, self.fields, self.times)[operation].take(count))
            elif operation == 3:
                self.zeros(count)
            else:
                need(count <= (self.most - self.length) // 512, "weave: more headers than there is room")
                for _ in range(count):
                    self.header(alone=operation == 5)
        for stream in (self.content, self.fields, self.times):
            stream.end()
        need(not expected and tuple(self.ends) == self.places(), "weave: a restart point behind the end")
        return b"".join(self.pieces)

    def header(self, alone):
        """A tar header, and what follows it."""
        fields, times = self.fields, self.times
        kind, mask, times_mask = fields.take(1), fields.take(1)[0], times.take(1)[0]
        member = kind not in EXTENDED
        brings = [bool(mask >> bit & 1) for bit in range(8)]
        timely = [bool(times_mask >> bit & 1) for bit in range(8)]
        need(times_mask < 16, "header: times' mask")
        need(not timely[0] or (member and brings[0]), "header: top without a name")
        need(not (timely[3] and brings[4]), "header: size twice")
        need(not timely[2] or (member and not timely[1] and self.extended is not None), "header: no extended time")
        header = bytearray(self.models.get(kind, bytes(512)))

        def put(at, size, text):
            need(len(text) <= size, "header: a name too long")
            header[at : at + size] = text.ljust(size, b"\0")

        if timely[0]:
            self.top = times.until_zero()
            need(len(self.top) <= 100, "header: top")
        if brings[0]:
            put(0, 100, (self.top if member else b"") + fields.until_zero())
        for bit, at in ((1, 100), (2, 108), (3, 116)):
            if brings[bit]:
                put(at, 8, fields.take(8))
        if brings[4]:
            put(124, 12, fields.take(12))
        if timely[3]:
            put(124, 12, times.take(12))
        if brings[5]:
            put(157, 100, fields.until_zero())
        if brings[6]:
            put(257, 255, fields.take(fields.take(1)[0]))
        if timely[1]:
            put(136, 12, times.take(12))
        elif member and self.extended is not None:
            put(136, 12, b"%011o\0" % (self.extended + timely[2]))
        header[156:157] = kind
        header[148:156] = b" " * 8
        total = sum(header)
        header[148:156] = b"%07o\0" % total if brings[7] else b"%06o\0 " % total
        self.models[kind] = bytes(header)
        self.append(bytes(header))
        if member or alone:
            self.extended = None
        if not alone:
            self.data(kind, header)

    def data(self, kind, header):
        size = 0
        if kind not in b"123456":
            digits = bytes(header[124:136]).lstrip(b" ")
            for end in (b" ", b"\0"):
                digits = digits.split(end)[0]
            need(all(digit in b"01234567" for digit in digits), "header: size")
            size = int(digits or b"0", 8)
        if kind in b"xg":
            need(kind == b"g" or size <= 64 * KIB, "header: extended data")
            data = self.times.take(size)
        else:
            data = (self.fields if kind in b"LK" else self.content).take(size)
        self.append(data)
        self.zeros(-size % 512)
        if kind == b"x":
            self.extended = extended_time(data)


def extended_time(data):
    at = data.rfind(b" mtime=")
    if at < 0:
        return None
    digits = data[at + 7 :]
    count = next((i for i, byte in enumerate(digits) if byte not in b"0123456789"), len(digits))
    if not count or int(digits[:count]) >= 8**11 - 1:
        return None
    return int(digits[:count])


# ---------------------------------------------------------------------------------------- catalog

KINDS = ("file", "folder", "symlink", "hardlink")


def read_catalog(data, plain):
    """The entries, each with its bytes if it is a file."""
    source, entries, kinds, at = Bytes(data, "catalog"), [], {}, 0
    while not source.ended():
        record = Bytes(source.take(source.varint(0, RECORD_BYTES)), "catalog record")
        kind = record.take(1)[0]
        need(kind < len(KINDS), f"catalog: kind {kind}")
        path = record.take(record.varint(0, 4096))
        parts = path.split(b"/")
        whole = path == b"" and kind == 0
        need(whole or all(part not in (b"", b".", b"..") for part in parts) and b"\0" not in path, "catalog: path")
        mode, seconds, nanoseconds = record.varint(0, 0o7777), record.zigzag(), record.varint(0, 10**9 - 1)
        size = record.varint() if kind != 1 else 0
        target = record.take(size) if kind > 1 else b""
        need(kind < 2 or 1 <= size <= 4096 and b"\0" not in target, "catalog: target")
        record.end()
        need(path not in kinds, "catalog: a path twice")
        for i in range(1, len(parts)):
            need(kinds.get(b"/".join(parts[:i]), 1) == 1, "catalog: below what is no folder")
        need(kind != 3 or kinds.get(target) == 0, "catalog: hard link to no file")
        kinds[path] = kind
        need(size <= len(plain) - at or kind != 0, "catalog: longer than the plain content")
        content = plain[at : at + size] if kind == 0 else b""
        at += len(content)
        entries.append((kind, path, mode, seconds, nanoseconds, target, content))
    need(at == len(plain), "catalog: shorter than the plain content")
    need(b"" not in kinds or len(entries) == 1, "catalog: standard input and more")
    return entries


def escaped(text):
    """Bytes but for printable ASCII as \\xNN."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02x}" for byte in text)


def listing(entry):
    """Kind, permissions, time, path, and what the kind adds: bytes and BLAKE3, or a target."""
    kind, path, mode, seconds, nanoseconds, target, content = entry
    line = [KINDS[kind], f"{mode:04o}", f"{seconds} {nanoseconds}", escaped(path)]
    if kind == 0:
        line += [str(len(content)), digest(content).hex()]
    elif kind > 1:
        line.append(escaped(target))
    return "\t".join(line)


def extract(entries, folder):
    """Makes the entries below `folder`. Paths were checked; links are made last, so that none is walked through."""
    folder = os.fsencode(folder)
    for kind, path, _, _, _, _, content in entries:
        place = os.path.join(folder, path or b"content")
        if kind == 1:
            os.makedirs(place, exist_ok=True)
        if kind == 0:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(place, "xb") as file:
                file.write(content)
    for kind, path, _, _, _, target, _ in entries:
        place = os.path.join(folder, path)
        if kind > 1:
            os.makedirs(os.path.dirname(place), exist_ok=True)
        if kind == 2:
            os.symlink(target, place)
        if kind == 3:
            os.link(os.path.join(folder, target), place)
    for kind, path, mode, seconds, nanoseconds, _, _ in reversed(entries):
        if kind < 2:
            place = os.path.join(folder, path or b"content")
            os.chmod(place, mode)
            os.utime(place, ns=(seconds * 10**9 + nanoseconds,) * 2)


def main(arguments):
    secrets = {"--archive-key": None, "--group-secret": None}
    for option in [it for it in arguments if it.startswith("--")]:
        name, _, value = option.partition("=")
        if name not in secrets:
            sys.exit(__doc__)
        secrets[name] = bytes.fromhex(value)
        arguments = [it for it in arguments if it != option]
    if len(arguments) not in (1, 2):
        sys.exit(__doc__)
    with open(arguments[0], "rb") as file:
        data = file.read()
    try:
        archive = Archive(data, secrets["--archive-key"], secrets["--group-secret"])
    except Refused as refused:
        print(f"refused: {refused}", file=sys.stderr)
        return 1
    for entry in archive.entries:
        print(listing(entry))
    if len(arguments) == 2:
        extract(archive.entries, arguments[1])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
