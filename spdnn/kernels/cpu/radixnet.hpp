// The layers of a RadiX-Net by formula (spdnn/formats/radixnet.py).
#pragma once

#include <algorithm>
#include <cstdint>

namespace spdnn {

// Row i of `groups` (classes, width), ascending, merged with the row `shift` rows on, for each class; all of that
// `copies` times: once for each output of a class.
template <class T>
void merge_groups(const T* groups, int64_t classes, int64_t width, int64_t shift, int64_t copies, T* to) {
    for (int64_t i = 0; i < classes; ++i) {
        const T *a = groups + i * width,
                *b = groups + (i + shift) % classes * width, *const a_end = a + width, *const b_end = b + width;
        T* out = to + i * 2 * width;
        // Merge two sorted rows: the comparison's result advances the cursors, without a branch.
        while (a < a_end && b < b_end) {
            const bool first = *a <= *b;
            *out++ = first ? *a : *b;
            a += first, b += !first;
        }
        while (a < a_end) *out++ = *a++;
        while (b < b_end) *out++ = *b++;
    }
    const int64_t period = classes * 2 * width;
    for (int64_t copy = 1; copy < copies; ++copy) std::copy(to, to + period, to + copy * period);
}

}  // namespace spdnn
