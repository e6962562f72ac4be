"""AES-256-GCM-SIV by RFC 8452, to open what is sealed. Slow, and its time depends on keys: for tests."""

import struct


def rotl8(byte, by):
    return (byte << by | byte >> (8 - by)) & 255


def sbox():
    """AES' table, from inverses in GF(2^8)."""
    table, p, q = [0] * 256, 1, 1
    while True:
        p ^= p << 1 & 255 ^ (0x1B if p & 128 else 0)
        for by in (1, 2, 4):
            q ^= q << by & 255
        q ^= 9 if q & 128 else 0
        table[p] = q ^ rotl8(q, 1) ^ rotl8(q, 2) ^ rotl8(q, 3) ^ rotl8(q, 4) ^ 0x63
        if p == 1:
            table[0] = 0x63
            return table


SBOX = sbox()
TWICE = [byte << 1 & 255 ^ (0x1B if byte & 128 else 0) for byte in range(256)]


class Aes256:
    """Encrypts blocks of 16 bytes."""

    def __init__(self, key):
        words, constant = [key[at : at + 4] for at in range(0, 32, 4)], 1
        for i in range(8, 60):
            word = words[-1]
            if i % 8 == 0:
                word = bytes(SBOX[byte] for byte in word[1:] + word[:1])
                word, constant = bytes([word[0] ^ constant]) + word[1:], TWICE[constant]
            elif i % 8 == 4:
                word = bytes(SBOX[byte] for byte in word)
            words.append(bytes(a ^ b for a, b in zip(words[i - 8], word)))
        self.rounds = [b"".join(words[at : at + 4]) for at in range(0, 60, 4)]

    def encrypt(self, block):
        state = bytes(a ^ b for a, b in zip(block, self.rounds[0]))
        for number, key in enumerate(self.rounds[1:], 1):
            state = [SBOX[state[5 * i % 16]] for i in range(16)]
            if number < 14:
                mixed = []
                for column in (state[at : at + 4] for at in range(0, 16, 4)):
                    whole = column[0] ^ column[1] ^ column[2] ^ column[3]
                    mixed += [column[i] ^ whole ^ TWICE[column[i] ^ column[(i + 1) % 4]] for i in range(4)]
                state = mixed
            state = bytes(a ^ b for a, b in zip(state, key))
        return state


def polyval(key, data):
    """The hash of whole blocks: GF(2^128) with x^128 + x^127 + x^126 + x^121 + 1, each product by x^-128."""
    h, total = int.from_bytes(key, "little"), 0
    for at in range(0, len(data), 16):
        a, product = total ^ int.from_bytes(data[at : at + 16], "little"), 0
        for bit in range(128):
            if a >> bit & 1:
                product ^= h << bit
        for bit in range(128):
            if product >> bit & 1:
                product ^= (1 | 1 << 121 | 1 << 126 | 1 << 127 | 1 << 128) << bit
        total = product >> 128
    return total.to_bytes(16, "little")


def padded(data):
    return data + bytes(-len(data) % 16)


def opened(key, nonce, sealed, associated=b""):
    """What was sealed, or None if it was not with this key, nonce and associated data."""
    if len(sealed) < 16:
        return None
    cipher = Aes256(key)
    halves = [cipher.encrypt(struct.pack("<I", i) + nonce)[:8] for i in range(6)]
    hash_key, cipher = b"".join(halves[:2]), Aes256(b"".join(halves[2:]))
    text, tag = sealed[:-16], sealed[-16:]
    counter, rest = struct.unpack("<I", tag[:4])[0], tag[4:15] + bytes([tag[15] | 128])
    plain = b""
    for at in range(0, len(text), 16):
        stream = cipher.encrypt(struct.pack("<I", counter) + rest)
        plain += bytes(a ^ b for a, b in zip(text[at : at + 16], stream))
        counter = (counter + 1) & 0xFFFFFFFF
    lengths = struct.pack("<2Q", 8 * len(associated), 8 * len(plain))
    hashed = polyval(hash_key, padded(associated) + padded(plain) + lengths)
    hashed = bytes(a ^ b for a, b in zip(hashed, nonce + bytes(4)))
    expected = cipher.encrypt(hashed[:15] + bytes([hashed[15] & 127]))
    return plain if expected == tag else None
