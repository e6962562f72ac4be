"""BLAKE3: by the module `blake3`, or slowly."""

import struct

KIB = 1 << 10

try:
    from blake3 import blake3

    def digest(data, count=32, key=None):
        """BLAKE3 of `data`, with a key if there is one, cut to `count` bytes."""
        return blake3(data, key=key).digest(count)

    def derive(context, data):
        """BLAKE3's derive_key."""
        return blake3(data, derive_key_context=context).digest()

except ImportError:
    IV = (
        0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
        0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19,
    )
    SHUFFLE = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
    COLUMNS_AND_DIAGONALS = (
        (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
        (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14),
    )
    CHUNK_START, CHUNK_END, PARENT, ROOT, KEYED, CONTEXT, MATERIAL = (1 << bit for bit in range(7))

    def compress(chain, block, counter, length, flags):
        """One BLAKE3 compression: the eight words that go on."""
        words = list(struct.unpack("<16I", block.ljust(64, b"\0")))
        v = [*chain, *IV[:4], counter & 0xFFFFFFFF, counter >> 32, length, flags]
        for _ in range(7):
            for i, (a, b, c, d) in enumerate(COLUMNS_AND_DIAGONALS):
                for word, by_d, by_b in ((words[2 * i], 16, 12), (words[2 * i + 1], 8, 7)):
                    v[a] = (v[a] + v[b] + word) & 0xFFFFFFFF
                    x = v[d] ^ v[a]
                    v[d] = (x >> by_d | x << (32 - by_d)) & 0xFFFFFFFF
                    v[c] = (v[c] + v[d]) & 0xFFFFFFFF
                    x = v[b] ^ v[c]
                    v[b] = (x >> by_b | x << (32 - by_b)) & 0xFFFFFFFF
            words = [words[i] for i in SHUFFLE]
        return [v[i] ^ v[i + 8] for i in range(8)]

    def tree(data, number, root, key, mode):
        """The chaining value of what lies below one node of BLAKE3's tree."""
        if len(data) <= KIB:
            chain = key
            blocks = [data[at : at + 64] for at in range(0, len(data), 64)] or [b""]
            for i, block in enumerate(blocks):
                last = i + 1 == len(blocks)
                flags = mode | (CHUNK_START if i == 0 else 0) | ((CHUNK_END | root) if last else 0)
                chain = compress(chain, block, number, len(block), flags)
            return chain
        chunks = (len(data) - 1) // KIB
        left = 1 << (chunks.bit_length() - 1)
        first, second = data[: left * KIB], data[left * KIB :]
        both = tree(first, number, 0, key, mode) + tree(second, number + left, 0, key, mode)
        return compress(key, struct.pack("<16I", *both), 0, 64, PARENT | root | mode)

    def hashed(data, key, mode):
        return struct.pack("<8I", *tree(memoryview(data).tobytes(), 0, ROOT, key, mode))

    def digest(data, count=32, key=None):
        """BLAKE3 of `data`, with a key if there is one, cut to `count` bytes."""
        if key is None:
            return hashed(data, IV, 0)[:count]
        return hashed(data, struct.unpack("<8I", key), KEYED)[:count]

    def derive(context, data):
        """BLAKE3's derive_key."""
        key = struct.unpack("<8I", hashed(context.encode(), IV, CONTEXT))
        return hashed(data, key, MATERIAL)
