// The part of zlib that Verilator's waveform writer needs, for machines without zlib. It does not
// compress: the writer keeps the original if the "compressed" block is not smaller.
#pragma once

#include <cstring>

typedef unsigned char Bytef;
typedef unsigned long uLong;
typedef unsigned long uLongf;

#define Z_OK 0

inline uLong compressBound(uLong size) { return size + 1; }

inline int compress2(Bytef *target, uLongf *length, const Bytef *source, uLong size, int) {
    std::memcpy(target, source, size);
    *length = size;
    return Z_OK;
}
