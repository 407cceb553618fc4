// Contents of module `memory` when it is built with PROCESS_MEMORY: bytes of this process, which
// other processes may read and write meanwhile.
//
// An aligned word of two, four or eight bytes is read at once. It is written at once if all its
// bytes are, so that no process sees a part of it. Bytes that are not written are not touched.

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "svdpi.h"

namespace {

unsigned char* s_first = nullptr;
std::uint64_t s_bytes = 0;

template <typename Word>
void put(unsigned char* to, const unsigned char* from) {
    Word word;
    std::memcpy(&word, from, sizeof word);
    __atomic_store_n(reinterpret_cast<Word*>(to), word, __ATOMIC_RELEASE);
}

// Writes those of `size` bytes, at most eight, whose strobe is 1.
void put_some(unsigned char* to, const unsigned char* from, unsigned strobe, int size) {
    if (!strobe) return;
    if (strobe != (1u << size) - 1) {
        const int half = size / 2;
        put_some(to, from, strobe & ((1u << half) - 1), half);
        put_some(to + half, from + half, strobe >> half, half);
        return;
    }
    switch (size) {
        case 8: return put<std::uint64_t>(to, from);
        case 4: return put<std::uint32_t>(to, from);
        case 2: return put<std::uint16_t>(to, from);
        default: return put<std::uint8_t>(to, from);
    }
}

}  // namespace

// Called by the process (`backdoor.py`): the contents are `bytes` bytes from `first`, a multiple of
// eight.
extern "C" void signalbox_share_memory(void* first, std::uint64_t bytes) {
    s_first = static_cast<unsigned char*>(first);
    s_bytes = bytes;
}

// Also called by the process. Returns the first byte; if there are no contents yet, allocates `wanted`
// zero bytes. Null if there are not so many.
extern "C" void* signalbox_memory(std::uint64_t wanted) {
    if (!s_first) {
        void* const first = std::calloc(wanted, 1);
        signalbox_share_memory(first, first ? wanted : 0);
    }
    return s_first;
}

extern "C" unsigned long long process_memory_bytes(unsigned long long wanted) {
    signalbox_memory(wanted);
    return s_bytes;
}

// `address` and `size` are multiples of eight, here and below.
extern "C" void process_memory_read(unsigned long long address, int size, svBitVecVal* data) {
    for (int at = 0; at < size; at += 8) {
        const auto* from = reinterpret_cast<const std::uint64_t*>(s_first + address + at);
        const std::uint64_t word = __atomic_load_n(from, __ATOMIC_ACQUIRE);
        std::memcpy(data + at / 4, &word, 8);
    }
}

extern "C" void process_memory_write(
    unsigned long long address, int size, const svBitVecVal* data, const svBitVecVal* strobe) {
    const auto* from = reinterpret_cast<const unsigned char*>(data);
    const auto* strobes = reinterpret_cast<const unsigned char*>(strobe);
    for (int at = 0; at < size; at += 8) {
        put_some(s_first + address + at, from + at, strobes[at / 8], 8);
    }
}
