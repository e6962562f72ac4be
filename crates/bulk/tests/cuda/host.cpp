// Runs the kernels on a host: a thread for each of a block's, block after block. Reads from standard
// input what to mark, and writes the windows that were listed to standard output, as 32-bit words.
//
//   kernel (0 MODP by bytes, 1 by halves, 2 PACK), blocks, threads, room, count: 32-bit words
//   mask: a 64-bit word
//   tables: 512 64-bit words
//   bytes: as many as come, from the one before the first window on

#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

struct uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct Place {
    uint32_t x;
};

static thread_local Place threadIdx;
static Place blockIdx, blockDim, gridDim;
static std::unique_ptr<std::barrier<>> meeting;
static uint2 tables_of_block[2 * 256 * 32];

static void __syncthreads() { meeting->arrive_and_wait(); }
static uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t shift) {
    return high << shift | low >> (32 - shift);
}
static int __popc(uint32_t word) { return __builtin_popcount(word); }
static int __ffs(uint32_t word) { return __builtin_ffs((int)word); }
static uint32_t __brev(uint32_t word) {
    uint32_t reversed = 0;
    for (int bit = 0; bit < 32; bit++) {
        reversed |= (word >> bit & 1) << (31 - bit);
    }
    return reversed;
}

#define __device__
#define __global__
#define __forceinline__ inline
// One block runs at a time.
#define __shared__ static
#define SHARED_TABLES static uint2 *shared_tables = tables_of_block

#include "../../src/cuda/kernels.cu"

template <typename Kernel>
static void launch(uint32_t blocks, uint32_t threads, Kernel kernel) {
    gridDim.x = blocks;
    blockDim.x = threads;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
        meeting = std::make_unique<std::barrier<>>(threads);
        std::vector<std::thread> block;
        for (uint32_t thread = 0; thread < threads; thread++) {
            block.emplace_back([thread, &kernel] {
                threadIdx.x = thread;
                kernel();
            });
        }
        for (auto &thread : block) {
            thread.join();
        }
    }
}

static void read_exactly(void *target, size_t bytes) {
    if (fread(target, 1, bytes, stdin) != bytes) {
        fprintf(stderr, "the input is too short\n");
        exit(1);
    }
}

int main() {
    uint32_t head[5];
    uint64_t mask, tables[512];
    read_exactly(head, sizeof head);
    read_exactly(&mask, sizeof mask);
    read_exactly(tables, sizeof tables);
    auto [kernel, blocks, threads, room, count] = head;

    // What is behind the input may be anything, and so may what was in a bitmap.
    size_t padded = (count + SPAN - 1) / SPAN * SPAN + WINDOW;
    std::unique_ptr<uint4[]> aligned(new uint4[padded / sizeof(uint4) + 1]);
    u8 *bytes = (u8 *)aligned.get();
    memset(bytes, 0xa5, padded);
    fread(bytes, 1, padded, stdin);
    uint32_t parts = (count + 32 * PART_WORDS - 1) / (32 * PART_WORDS);
    std::vector<u32> marks((count + 31) / 32, 0xdeadbeef), counts(parts + 1), list(room);

    const uint2 *remainders = (const uint2 *)tables;
    launch(blocks, threads, [&] {
        switch (kernel) {
        case 0:
            return mark_modp_by_bytes(bytes, count, (u32)mask, remainders, (u16 *)marks.data());
        case 1:
            return mark_modp_by_halves(bytes, count, (u32)mask, remainders, (u16 *)marks.data());
        default:
            return mark_pack(bytes, count, mask, (u16 *)marks.data());
        }
    });
    launch(parts, LISTERS, [&] { count_marks(marks.data(), count, counts.data()); });
    launch(1, LISTERS, [&] { sum_counts(counts.data(), parts); });
    launch(parts, LISTERS, [&] {
        list_marks(marks.data(), count, counts.data(), list.data(), room);
    });
    uint32_t listed = counts[parts] < room ? counts[parts] : room;
    fwrite(&counts[parts], sizeof(u32), 1, stdout);
    fwrite(list.data(), sizeof(u32), listed, stdout);
}
