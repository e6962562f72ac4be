// A driver for GPUs that are not there: as much of libcuda as the program uses, with the kernels run on
// the host. What is asked of a stream is done when somebody waits for it and not before, so that who
// does not wait sees it.
//
//   PRETENDED_GPUS      how many there are, 1 by default
//   PRETENDED_SHARED    bytes of shared memory that a block may have, 232448 by default
//   PRETENDED_FAILURE   the launch at which the GPUs break, until a context is made anew

#include <atomic>
#include <map>

#include "host.h"

enum { SUCCESS = 0, INVALID_VALUE = 1, NO_DEVICE = 100, LAUNCH_FAILED = 719 };

struct Stream {
    std::vector<std::function<void()>> asked;
};

static std::mutex changing;
static Stream default_stream;
static std::map<const char *, size_t> pinned;
static std::atomic<long> launches;
static std::atomic<bool> is_broken;

static long setting(const char *name, long otherwise) {
    const char *value = getenv(name);
    return value ? atol(value) : otherwise;
}

static bool is_pinned(const void *place) {
    std::lock_guard<std::mutex> lock(changing);
    auto after = pinned.upper_bound((const char *)place);
    if (after == pinned.begin()) {
        return false;
    }
    auto [start, bytes] = *--after;
    return (const char *)place < start + bytes;
}

static void ask(Stream *stream, std::function<void()> work) {
    std::lock_guard<std::mutex> lock(changing);
    (stream ? stream : &default_stream)->asked.push_back(std::move(work));
}

static int wait_for(Stream *stream) {
    std::vector<std::function<void()>> asked;
    {
        std::lock_guard<std::mutex> lock(changing);
        asked.swap((stream ? stream : &default_stream)->asked);
    }
    for (auto &work : asked) {
        if (!is_broken) {
            work();
        }
    }
    return is_broken ? LAUNCH_FAILED : SUCCESS;
}

extern "C" {
int cuInit(unsigned) { return SUCCESS; }
int cuDeviceGetCount(int *count) {
    *count = (int)setting("PRETENDED_GPUS", 1);
    return SUCCESS;
}
int cuDeviceGet(int *device, int number) {
    *device = number;
    return number < setting("PRETENDED_GPUS", 1) ? SUCCESS : NO_DEVICE;
}
int cuDeviceGetName(char *name, int size, int device) {
    snprintf(name, (size_t)size, "pretended GPU %d", device);
    return SUCCESS;
}
int cuDeviceGetAttribute(int *value, int attribute, int) {
    switch (attribute) {
    case 16: // multiprocessors
        *value = 2;
        return SUCCESS;
    case 97: // shared memory of a block that asks for it
        *value = (int)setting("PRETENDED_SHARED", 232448);
        return SUCCESS;
    case 115: // memory pools
        *value = 0;
        return SUCCESS;
    default:
        fprintf(stderr, "attribute %d is not pretended\n", attribute);
        return INVALID_VALUE;
    }
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    launches = 0;
    is_broken = false;
    *context = (void *)(intptr_t)(device + 1);
    return SUCCESS;
}
int cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
static thread_local void *current;
int cuCtxGetCurrent(void **context) {
    *context = current;
    return SUCCESS;
}
int cuCtxSetCurrent(void *context) {
    current = context;
    return SUCCESS;
}
int cuCtxSynchronize() { return wait_for(nullptr); }

int cuModuleLoadData(void **module, const void *image) {
    *module = (void *)1;
    return strstr((const char *)image, ".visible .entry") ? SUCCESS : INVALID_VALUE;
}
int cuModuleUnload(void *) { return SUCCESS; }
int cuModuleGetFunction(const char **function, void *, const char *name) {
    for (const char *known : {"mark_modp_by_bytes", "mark_modp_by_halves", "mark_pack",
                              "count_marks", "sum_counts", "list_marks"}) {
        if (strcmp(name, known) == 0) {
            *function = known;
            return SUCCESS;
        }
    }
    return INVALID_VALUE;
}
int cuFuncSetAttribute(const char *, int, int value) {
    return value <= setting("PRETENDED_SHARED", 232448) ? SUCCESS : INVALID_VALUE;
}

int cuMemAlloc_v2(void **memory, size_t bytes) {
    *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    memset(*memory, 0xcd, bytes);
    return SUCCESS;
}
int cuMemFree_v2(void *memory) {
    free(memory);
    return SUCCESS;
}
int cuMemHostAlloc(void **memory, size_t bytes, unsigned) {
    *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    memset(*memory, 0xab, bytes);
    std::lock_guard<std::mutex> lock(changing);
    pinned[(const char *)*memory] = bytes;
    return SUCCESS;
}
int cuMemFreeHost(void *memory) {
    std::lock_guard<std::mutex> lock(changing);
    if (pinned.erase((const char *)memory) == 0) {
        return INVALID_VALUE;
    }
    free(memory);
    return SUCCESS;
}
int cuMemsetD8Async(void *memory, unsigned char byte, size_t bytes, Stream *stream) {
    ask(stream, [=] { memset(memory, byte, bytes); });
    return SUCCESS;
}
int cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t bytes, Stream *stream) {
    if (is_pinned(from)) {
        ask(stream, [=] { memcpy(to, from, bytes); });
    } else {
        // Of memory that may be paged out there is a copy before this returns.
        std::vector<char> copy((const char *)from, (const char *)from + bytes);
        ask(stream, [=, copy = std::move(copy)] { memcpy(to, copy.data(), bytes); });
    }
    return SUCCESS;
}
int cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t bytes, Stream *stream) {
    ask(stream, [=] { memcpy(to, from, bytes); });
    return SUCCESS;
}

int cuStreamCreate(Stream **stream, unsigned) {
    *stream = new Stream;
    return SUCCESS;
}
int cuStreamDestroy_v2(Stream *stream) {
    int result = wait_for(stream);
    delete stream;
    return result;
}
int cuStreamSynchronize(Stream *stream) { return wait_for(stream); }
int cuStreamWaitEvent(Stream *, void *, unsigned) { return SUCCESS; }
int cuEventCreate(void **event, unsigned) {
    *event = (void *)1;
    return SUCCESS;
}
int cuEventRecord(void *, Stream *) { return SUCCESS; }
int cuEventSynchronize(void *) { return SUCCESS; }
int cuEventDestroy_v2(void *) { return SUCCESS; }

int cuLaunchKernel(const char *function, unsigned blocks, unsigned, unsigned, unsigned threads,
                   unsigned, unsigned, unsigned shared_bytes, Stream *stream, void **given,
                   void **) {
    if (launches++ >= setting("PRETENDED_FAILURE", 1L << 60)) {
        is_broken = true;
    }
    std::string name(function);
    if (blocks == 0 || threads > 1024 || shared_bytes > setting("PRETENDED_SHARED", 232448)) {
        return INVALID_VALUE;
    }
    // Arguments are copied when a kernel is launched.
    auto word = [&](int n) { return *(u32 *)given[n]; };
    auto place = [&](int n) { return *(void **)given[n]; };
    std::function<void()> kernel;
    if (name == "mark_pack") {
        kernel = [a = place(0), b = word(1), c = *(u64 *)given[2], d = place(3)] {
            mark_pack((u8 *)a, b, c, (u16 *)d);
        };
    } else if (name == "count_marks") {
        kernel = [a = place(0), b = word(1), c = place(2)] { count_marks((u32 *)a, b, (u32 *)c); };
    } else if (name == "sum_counts") {
        kernel = [a = place(0), b = word(1)] { sum_counts((u32 *)a, b); };
    } else if (name == "list_marks") {
        kernel = [a = place(0), b = word(1), c = place(2), d = place(3), e = word(4)] {
            list_marks((u32 *)a, b, (u32 *)c, (u32 *)d, e);
        };
    } else {
        size_t needed = (name == "mark_modp_by_bytes" ? 256 : 32) * 2 * 32 * sizeof(uint2);
        auto mark = name == "mark_modp_by_bytes" ? mark_modp_by_bytes : mark_modp_by_halves;
        if (shared_bytes < needed) {
            return INVALID_VALUE;
        }
        kernel = [a = place(0), b = word(1), c = word(2), d = place(3), e = place(4), mark] {
            mark((u8 *)a, b, c, (uint2 *)d, (u16 *)e);
        };
    }
    ask(stream, [=] { launch(blocks, threads, kernel); });
    return SUCCESS;
}
int cuGetErrorName(int error, const char **name) {
    *name = error == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_PRETENDED";
    return SUCCESS;
}
int cuGetErrorString(int, const char **text) {
    *text = "as it was told to";
    return SUCCESS;
}
}
