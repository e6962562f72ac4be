// The kernels on a host. A block's threads take turns: each runs until it meets the others at
// __syncthreads, or to its end. One block runs after another, and one launch at a time.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <ucontext.h>
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

static Place threadIdx, blockIdx, blockDim, gridDim;
static uint2 tables_of_block[2 * 256 * 32];

static const size_t STACK_BYTES = 64 << 10;

struct Turn {
    ucontext_t context;
    std::unique_ptr<char[]> stack{new char[STACK_BYTES]};
    bool has_ended = false;
};

static ucontext_t scheduler;
static std::vector<Turn> turns;
static const std::function<void()> *body;

static void __syncthreads() { swapcontext(&turns[threadIdx.x].context, &scheduler); }

static void run_thread() {
    (*body)();
    turns[threadIdx.x].has_ended = true;
}

static void launch(uint32_t blocks, uint32_t threads, const std::function<void()> &kernel) {
    static std::mutex one_at_a_time;
    std::lock_guard<std::mutex> lock(one_at_a_time);
    body = &kernel;
    gridDim.x = blocks;
    blockDim.x = threads;
    while (turns.size() < threads) {
        turns.emplace_back();
    }
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
        // What an earlier block left is no use to this one.
        memset(tables_of_block, 0xee, sizeof tables_of_block);
        for (uint32_t thread = 0; thread < threads; thread++) {
            Turn &turn = turns[thread];
            turn.has_ended = false;
            getcontext(&turn.context);
            turn.context.uc_stack.ss_sp = turn.stack.get();
            turn.context.uc_stack.ss_size = STACK_BYTES;
            turn.context.uc_link = &scheduler;
            makecontext(&turn.context, run_thread, 0);
        }
        for (bool any_left = true; any_left;) {
            any_left = false;
            for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) {
                Turn &turn = turns[threadIdx.x];
                if (!turn.has_ended) {
                    swapcontext(&scheduler, &turn.context);
                    any_left |= !turn.has_ended;
                }
            }
        }
    }
}

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
#define __shared__ static
#define SHARED_TABLES static uint2 *shared_tables = tables_of_block

#include "../../../src/cuda/kernels.cu"
