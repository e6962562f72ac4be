// Runs the kernels on a host. Reads from standard input what to mark, and writes the windows that were
// listed to standard output, as 32-bit words, behind how many there were.
//
//   kernel (0 MODP by bytes, 1 by halves, 2 PACK), blocks, threads, room, count: 32-bit words
//   mask: a 64-bit word
//   tables: 512 64-bit words
//   bytes: as many as come, from the one before the first window on

#include "host.h"

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
    uint32_t kernel = head[0], blocks = head[1], threads = head[2], room = head[3], count = head[4];

    // What is behind the input may be anything, and so may what was in a bitmap.
    size_t padded = (count + SPAN - 1) / SPAN * SPAN + WINDOW;
    std::unique_ptr<uint4[]> aligned(new uint4[padded / sizeof(uint4) + 1]);
    u8 *bytes = (u8 *)aligned.get();
    memset(bytes, 0xa5, padded);
    size_t read = fread(bytes, 1, padded, stdin);
    (void)read;
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
