// Text of entries, `row column value` a line (formats/text.py), read and written. One thread: layers are
// files of their own, and callers have a thread each.
#pragma once

#include <cstdint>
#include <string>

namespace spdnn {

// The entries of some lines, 1-based, in their order; empty lines hold none. Returns how many there are, or -1 where
// anything is not as usual: which line, and whether it is wrong, is for the strict parser to say. `tabs`: fields are
// parted by one tab, else by blanks.
int64_t entries_of(const char* text, int64_t bytes, bool tabs, bool valued, int64_t most_row, int64_t most_column,
                   int64_t room, int64_t* rows, int64_t* columns, float* values);

// A layer as lines, by output, then input. Not `valued`: all edges have values[0].
template <class T>
std::string text_of(const int64_t* offsets, int64_t outputs, const T* indices, const float* values, bool valued);

}  // namespace spdnn
