// Finds the anchors of a stream on a GPU: windows of 48 bytes, by Rabin fingerprint (MODP) or by
// PACK's rolling value. The scanners of codec say what is right; this finds the same, bit for bit.
//
//   marks    a bit for every window, set where it is an anchor         mark_modp, mark_pack
//   counts   how many are set in each part of the bitmap               count_marks
//   starts   how many are set before each part                         sum_counts
//   list     the windows' numbers, in order                            list_marks
//
// Bytes come with one more in front: window i is bytes[i + 1] to bytes[i + 48]. So a thread that
// begins with the 48 bytes from its first window's number on holds the window before, and its loads
// are aligned. Bytes behind the last window may be anything; there are MARGIN of them at least.
//
// Written for a host's compiler as well (tests/bulk/pretended): no warp is relied upon, threads of a block meet
// at __syncthreads alone.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// Windows of a thread: ten times the 48 bytes that it holds in registers.
#define ROUNDS 10
#define WINDOW 48
#define WORDS (WINDOW / 4)
#define SPAN (ROUNDS * WINDOW)

// Threads of a block that counts or lists, and words of the bitmap of each of them.
#define LISTERS 256
#define LISTED_WORDS 8
#define PART_WORDS (LISTERS * LISTED_WORDS)

// Each lane of a warp has tables of its own, in the bank of its own: all lanes look up at once.
#define LANES 32

// 48 bytes, whatever they are.
struct Window {
    u32 words[WORDS];
};

static __device__ __forceinline__ Window load(const u8 *bytes) {
    const uint4 *quads = (const uint4 *)bytes;
    Window window;
#pragma unroll
    for (int i = 0; i < WORDS / 4; i++) {
        uint4 quad = quads[i];
        window.words[4 * i] = quad.x;
        window.words[4 * i + 1] = quad.y;
        window.words[4 * i + 2] = quad.z;
        window.words[4 * i + 3] = quad.w;
    }
    return window;
}

// Writes 16 marks, of windows from `first` on, of which there are `count` in all.
static __device__ __forceinline__ void write_marks(u16 *marks, u32 first, u32 count, u32 bits) {
    if (first >= count) {
        return;
    }
    if (count - first < 16) {
        bits &= (1u << (count - first)) - 1;
    }
    marks[first / 16] = (u16)bits;
}

// Looks a byte up in a lane's tables, which are for BITS of it each.
template <int BITS>
static __device__ __forceinline__ uint2 look_up(const uint2 *tables, u32 byte) {
    const u32 entries = 1u << BITS;
    uint2 sum = tables[(byte & (entries - 1)) * LANES];
#pragma unroll
    for (int part = 1; part < 8 / BITS; part++) {
        uint2 more = tables[(part * entries + ((byte >> (part * BITS)) & (entries - 1))) * LANES];
        sum.x ^= more.x;
        sum.y ^= more.y;
    }
    return sum;
}

// Marks windows whose fingerprint has all bits of `mask` set.
//
// `tables` has 256 remainders by the byte that enters, then 256 by the byte that leaves; low words
// first. Blocks take as many spans as there are; their tables are theirs alone.
template <int BITS>
static __device__ __forceinline__ void mark_modp(
    const u8 *bytes, u32 count, u32 mask, const uint2 *tables, u16 *marks, uint2 *shared) {
    const u32 entries = 1u << BITS;
    const u32 of_table = entries * (8 / BITS);
    for (u32 i = threadIdx.x; i < 2 * of_table * LANES; i += blockDim.x) {
        u32 entry = i / LANES % of_table;
        u32 byte = entry % entries << (entry / entries * BITS);
        shared[i] = tables[i / LANES / of_table * 256 + byte];
    }
    __syncthreads();
    const uint2 *entering = shared + threadIdx.x % LANES;
    const uint2 *leaving = entering + of_table * LANES;

    u32 spans = (count + SPAN - 1) / SPAN;
    for (u32 span = blockIdx.x * blockDim.x + threadIdx.x; span < spans;
         span += gridDim.x * blockDim.x) {
        u32 first = span * SPAN;
        Window window = load(bytes + first);
        u32 low = 0, high = 0;
#pragma unroll
        for (int word = 0; word < WORDS; word++) {
            u32 reversed = __brev(window.words[word]);
#pragma unroll
            for (int byte = 0; byte < 4; byte++) {
                uint2 in = look_up<BITS>(entering, (reversed ^ high) >> 24);
                reversed <<= 8;
                high = __funnelshift_l(low, high, 8) ^ in.y;
                low = low << 8 ^ in.x;
            }
        }
        for (int round = 0; round < ROUNDS; round++) {
            u32 at = first + round * WINDOW;
            Window next = load(bytes + at + WINDOW);
            u32 bits = 0;
#pragma unroll
            for (int word = 0; word < WORDS; word++) {
                u32 reversed = __brev(next.words[word]);
                u32 old = window.words[word];
#pragma unroll
                for (int byte = 0; byte < 4; byte++) {
                    uint2 in = look_up<BITS>(entering, (reversed ^ high) >> 24);
                    uint2 out = look_up<BITS>(leaving, old >> (8 * byte) & 255);
                    reversed <<= 8;
                    high = __funnelshift_l(low, high, 8) ^ in.y ^ out.y;
                    low = low << 8 ^ in.x ^ out.x;
                    bits |= (u32)((~low & mask) == 0) << (word % 4 * 4 + byte);
                }
                window.words[word] = next.words[word];
                if (word % 4 == 3) {
                    write_marks(marks, at + word / 4 * 16, count, bits);
                    bits = 0;
                }
            }
        }
    }
}

#ifndef SHARED_TABLES
#define SHARED_TABLES extern __shared__ uint2 shared_tables[]
#endif
SHARED_TABLES;

// With tables of whole bytes: 128 KiB of shared memory, half the look-ups.
extern "C" __global__ void mark_modp_by_bytes(
    const u8 *bytes, u32 count, u32 mask, const uint2 *tables, u16 *marks) {
    mark_modp<8>(bytes, count, mask, tables, marks, shared_tables);
}

// With tables of half bytes: 16 KiB.
extern "C" __global__ void mark_modp_by_halves(
    const u8 *bytes, u32 count, u32 mask, const uint2 *tables, u16 *marks) {
    mark_modp<4>(bytes, count, mask, tables, marks, shared_tables);
}

// Marks windows whose rolling value has all bits of `mask` set, of which 48 are asked for at most.
extern "C" __global__ void mark_pack(const u8 *bytes, u32 count, u64 mask, u16 *marks) {
    u32 mask_low = (u32)mask, mask_high = (u32)(mask >> 32);
    u32 spans = (count + SPAN - 1) / SPAN;
    for (u32 span = blockIdx.x * blockDim.x + threadIdx.x; span < spans;
         span += gridDim.x * blockDim.x) {
        u32 first = span * SPAN;
        Window window = load(bytes + first);
        u32 low = 0, high = 0;
#pragma unroll
        for (int i = 0; i < WINDOW; i++) {
            high = __funnelshift_l(low, high, 1);
            low = low << 1 ^ (window.words[i / 4] >> (i % 4 * 8) & 255);
        }
        for (int round = 0; round < ROUNDS; round++) {
            u32 at = first + round * WINDOW;
            window = load(bytes + at + WINDOW);
            u32 bits = 0;
#pragma unroll
            for (int i = 0; i < WINDOW; i++) {
                high = __funnelshift_l(low, high, 1);
                low = low << 1 ^ (window.words[i / 4] >> (i % 4 * 8) & 255);
                bits |= (u32)(((~low & mask_low) | (~high & mask_high)) == 0) << (i % 16);
                if (i % 16 == 15) {
                    write_marks(marks, at + i / 16 * 16, count, bits);
                    bits = 0;
                }
            }
        }
    }
}

// The words of the bitmap that a thread counts or lists; behind its end there are none set.
static __device__ __forceinline__ void load_marks(
    const u32 *marks, u32 count, u32 words[LISTED_WORDS]) {
    u32 first = (blockIdx.x * LISTERS + threadIdx.x) * LISTED_WORDS;
#pragma unroll
    for (int i = 0; i < LISTED_WORDS; i++) {
        u32 from = (first + i) * 32;
        u32 word = from < count ? marks[first + i] : 0;
        // Of the last word a half may never have been written.
        words[i] = count - from < 32 && from < count ? word & ((1u << (count - from)) - 1) : word;
    }
}

// In every thread's place of `sums`: the sum of its `value` and those of the threads before it.
static __device__ __forceinline__ u32 sum_up_to(u32 *sums, u32 value) {
    sums[threadIdx.x] = value;
    __syncthreads();
    for (u32 distance = 1; distance < blockDim.x; distance *= 2) {
        u32 before = threadIdx.x >= distance ? sums[threadIdx.x - distance] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }
    return sums[threadIdx.x];
}

// How many marks there are in each part of PART_WORDS; a block a part.
extern "C" __global__ void count_marks(const u32 *marks, u32 count, u32 *counts) {
    __shared__ u32 sums[LISTERS];
    u32 words[LISTED_WORDS], set = 0;
    load_marks(marks, count, words);
#pragma unroll
    for (int i = 0; i < LISTED_WORDS; i++) {
        set += __popc(words[i]);
    }
    u32 sum = sum_up_to(sums, set);
    if (threadIdx.x == LISTERS - 1) {
        counts[blockIdx.x] = sum;
    }
}

// Turns the counts of `parts` into how many marks there are before each; behind them, how many in
// all. One block of LISTERS.
extern "C" __global__ void sum_counts(u32 *counts, u32 parts) {
    __shared__ u32 sums[LISTERS];
    u32 before = 0;
    for (u32 from = 0; from < parts; from += LISTERS) {
        u32 part = from + threadIdx.x;
        u32 mine = part < parts ? counts[part] : 0;
        u32 sum = sum_up_to(sums, mine);
        if (part < parts) {
            counts[part] = before + sum - mine;
        }
        before += sums[LISTERS - 1];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        counts[parts] = before;
    }
}

// Lists the marks in order, as far as there is room; a block a part.
extern "C" __global__ void list_marks(
    const u32 *marks, u32 count, const u32 *starts, u32 *list, u32 room) {
    __shared__ u32 sums[LISTERS];
    u32 words[LISTED_WORDS], set = 0;
    load_marks(marks, count, words);
#pragma unroll
    for (int i = 0; i < LISTED_WORDS; i++) {
        set += __popc(words[i]);
    }
    u32 place = starts[blockIdx.x] + sum_up_to(sums, set) - set;
    u32 first = (blockIdx.x * LISTERS + threadIdx.x) * LISTED_WORDS;
    for (int i = 0; i < LISTED_WORDS; i++) {
        u32 word = words[i];
        while (word != 0 && place < room) {
            list[place++] = (first + i) * 32 + __ffs(word) - 1;
            word &= word - 1;
        }
    }
}
