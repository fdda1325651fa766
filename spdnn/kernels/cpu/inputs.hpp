// The inputs' own rows as what the first layer of a tile reads: words of bits, or floats.
#pragma once

#include "fused_layers.hpp"
#include "level.hpp"

#include <algorithm>
#include <cstring>

namespace spdnn {
namespace SPDNN_LEVEL {
namespace {

constexpr int kTransposed = 64;  // rows of bits that are transposed at a time

// words (neurons) <- bit i of words[n] is input first + i of neuron n. 64 rows and a vector of bytes are transposed at
// a time, as many 64 x 64 matrices side by side as a vector has words. Source: Warren, "Hacker's Delight", section 7-3.
void transpose(const Rows& rows, int64_t neurons, int64_t first, int filled, uint64_t* words) {
    constexpr int kWords = SPDNN_VECTOR_BYTES / 8;
    const uint8_t* row[kTransposed];
    for (int i = 0; i < filled; ++i) row[i] = rows.bits + rows.numbers[first + i] * rows.row_bytes;
    // Load a vector of bytes of each of 64 rows: several 64 x 64 bit matrices side by side.
    for (int64_t byte = 0; byte < rows.row_bytes; byte += SPDNN_VECTOR_BYTES) {
        WordVec a[kTransposed] = {};
        const int64_t bytes = std::min<int64_t>(SPDNN_VECTOR_BYTES, rows.row_bytes - byte);
        if (bytes == SPDNN_VECTOR_BYTES) {
            for (int i = 0; i < filled; ++i) {
                std::memcpy(&a[i], row[i] + byte, SPDNN_VECTOR_BYTES);
                __builtin_prefetch(row[i] + byte + 8 * 64);
            }
        } else {
            for (int i = 0; i < filled; ++i) std::memcpy(&a[i], row[i] + byte, bytes);
        }
        // Transpose them recursively: swap the off-diagonal blocks of 32 bits, then of 16, down to single bits.
        uint64_t mask = 0x00000000ffffffffu;
        for (int j = 32; j; j >>= 1, mask ^= mask << j)
            for (int k = 0; k < 64; k = ((k | j) + 1) & ~j) {
                const WordVec t = ((a[k] >> j) ^ a[k | j]) & mask;
                a[k] ^= t << j;
                a[k | j] ^= t;
            }
        // Bit b of a little-endian word is neuron b ^ 7 of it: the first neuron is the highest bit of the first byte.
        const int64_t base = byte * 8;
        for (int w = 0; w < kWords && base + 64 * w < neurons; ++w) {
            uint64_t* out = words + base + 64 * w;
            if (base + 64 * w + 64 <= neurons) {
                for (int b = 0; b < 64; ++b) out[b ^ 7] = a[b][w];
            } else {
                for (int b = 0; b < 64; ++b)
                    if (base + 64 * w + (b ^ 7) < neurons) out[b ^ 7] = a[b][w];
            }
        }
    }
}

// out (neurons, tile) <- rows first .. first + filled - 1; the other lanes are zero.
void expand(const Rows& rows, int64_t neurons, int64_t first, int filled, int tile, float* out) {
    std::memset(out, 0, sizeof(float) * tile * neurons);
    // Scatter each row into its lane of the tile.
    for (int i = 0; i < filled; ++i) {
        const int64_t number = rows.numbers[first + i];
        if (rows.bits) {
            const uint8_t* row = rows.bits + number * rows.row_bytes;
            for (int64_t n = 0; n < neurons; ++n) out[n * tile + i] = static_cast<float>(row[n / 8] >> (7 - n % 8) & 1);
        } else if (rows.dense) {
            const float* row = rows.dense + number * neurons;
            for (int64_t n = 0; n < neurons; ++n) out[n * tile + i] = row[n];
        } else {
            for (int64_t e = rows.csr_offsets[number]; e < rows.csr_offsets[number + 1]; ++e)
                out[rows.csr_columns[e] * tile + i] = rows.csr_values[e];
        }
    }
}

}  // namespace
}  // namespace SPDNN_LEVEL
}  // namespace spdnn
