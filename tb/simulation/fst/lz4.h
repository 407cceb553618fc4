// The two functions of liblz4 that Verilator's waveform writer calls, for machines without it.
// Format: the LZ4 block format; a greedy compressor with one table of recent positions.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

inline int LZ4_compressBound(int size) { return size + size / 255 + 16; }

namespace lz4_detail {

inline uint8_t *length(uint8_t *out, int rest) {
    for (; rest >= 255; rest -= 255) *out++ = 255;
    *out++ = static_cast<uint8_t>(rest);
    return out;
}

// One sequence: literals, then a match of `match` bytes `distance` back (none in the last one).
inline uint8_t *sequence(uint8_t *out, const uint8_t *from, int literals, int distance, int match) {
    const int extra = match ? match - 4 : 0;
    *out++ = static_cast<uint8_t>((literals < 15 ? literals : 15) << 4 | (extra < 15 ? extra : 15));
    if (literals >= 15) out = length(out, literals - 15);
    std::memcpy(out, from, literals);
    out += literals;
    if (!match) return out;
    *out++ = static_cast<uint8_t>(distance);
    *out++ = static_cast<uint8_t>(distance >> 8);
    return extra >= 15 ? length(out, extra - 15) : out;
}

}  // namespace lz4_detail

// `capacity` is LZ4_compressBound(size), as Verilator passes it.
inline int LZ4_compress_default(const char *source, char *target, int size, int /*capacity*/) {
    const uint8_t *const in = reinterpret_cast<const uint8_t *>(source);
    uint8_t *out = reinterpret_cast<uint8_t *>(target);
    std::vector<int> recent(1 << 14, -1);
    int start = 0;
    // The last match must begin at least 12 bytes, and end at least 5 bytes, before the end.
    for (int at = 0; at + 12 < size;) {
        uint32_t word;
        std::memcpy(&word, in + at, 4);
        int &slot = recent[(word * 2654435761u) >> 18];
        const int found = slot;
        slot = at;
        if (found < 0 || at - found > 65535 || std::memcmp(in + found, in + at, 4) != 0) {
            ++at;
            continue;
        }
        int match = 4;
        while (at + match < size - 5 && in[found + match] == in[at + match]) ++match;
        out = lz4_detail::sequence(out, in + start, at - start, at - found, match);
        at += match;
        start = at;
    }
    out = lz4_detail::sequence(out, in + start, size - start, 0, 0);
    return static_cast<int>(out - reinterpret_cast<uint8_t *>(target));
}
