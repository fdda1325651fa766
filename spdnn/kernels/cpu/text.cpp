// Text of entries, `row column value` a line (formats/text.py), read and written for the Python module
// spdnn.kernels._cpu. One thread: layers are files of their own, and callers have a thread each.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "binding.hpp"

namespace spdnn {
namespace {

bool is_digit(char sign) { return sign >= '0' && sign <= '9'; }

// What is left of a text, and how its fields are read. Each function returns false where the strict parser must judge.
struct Reader {
    const char *at, *end;
    bool tabs;                   // fields are parted by one tab, else by blanks
    std::string_view last = {};  // the text of the value before, which is most often that of the next too
    float last_value = 0;

    bool blank() const { return at < end && (*at == ' ' || *at == '\t'); }

    bool number(int64_t most, int64_t& result) {
        const char* const begin = at;
        result = 0;
        // 18 digits cannot overflow 64 bits; a longer number fails at its next character.
        while (at < end && at - begin < 18 && is_digit(*at)) result = 10 * result + (*at++ - '0');
        return result >= 1 && result <= most;
    }

    bool part() {
        if (tabs) return at < end && *at++ == '\t';
        if (!blank()) return false;
        while (blank()) ++at;
        return true;
    }

    bool value(float& result) {
        const size_t left = end - at;
        // Cache of one value: the same text up to the end of the line needs no conversion.
        if (left > last.size() && !last.empty() && !std::memcmp(at, last.data(), last.size()) &&
            (at[last.size()] == '\n' || at[last.size()] == '\r')) {
            at += last.size(), result = last_value;
            return true;
        }
        // std::from_chars takes no plus sign, but takes inf and nan: check the first characters here.
        const char *const begin = at, *first = begin + (begin < end && *begin == '+');
        const char* const digits = first + (first == begin && first < end && *first == '-');
        if (digits >= end || !(is_digit(*digits) || (*digits == '.' && digits + 1 < end && is_digit(digits[1]))))
            return false;
        double number;
        const auto [stop, error] = std::from_chars(first, end, number);
        result = static_cast<float>(number);
        // What is out of range of either type is left to the strict parser.
        if (error != std::errc() || !std::isfinite(result)) return false;
        at = stop, last = {begin, static_cast<size_t>(stop - begin)}, last_value = result;
        return true;
    }

    bool line_end() {
        while (!tabs && blank()) ++at;
        // A carriage return counts only as part of an end of line.
        if (at < end && *at == '\r') {
            if (++at == end || *at != '\n') return false;
        }
        return at == end || *at++ == '\n';
    }
};

// A value as `%e` where that is the same float32, else as `%.8e`, which always is.
size_t decimal(float value, char* to) {
    for (int precision : {6, 8}) {
        char* const end =
            std::to_chars(to, to + 32, static_cast<double>(value), std::chars_format::scientific, precision).ptr;
        double read;
        std::from_chars(to, end, read);
        if (precision == 8 || static_cast<float>(read) == value) return end - to;
    }
    return 0;
}

// The entries of some lines, 1-based, in their order; empty lines hold none. Returns how many there are, or -1 where
// anything is not as usual: which line, and whether it is wrong, is for the strict parser to say. `tabs`: fields are
// parted by one tab, else by blanks.
int64_t entries_of(const char* text, int64_t bytes, bool tabs, bool valued, int64_t most_row, int64_t most_column,
                   int64_t room, int64_t* rows, int64_t* columns, float* values) {
    Reader reader{text, text + bytes, tabs};
    int64_t count = 0;
    while (reader.at < reader.end) {
        // Empty lines have no entry.
        if (*reader.at == '\n') {
            ++reader.at;
            continue;
        }
        while (!tabs && reader.blank()) ++reader.at;
        float value = 1;
        // Parse in place, without copies; whatever is unusual ends here and leaves the text to the strict parser.
        if (count == room || !reader.number(most_row, rows[count]) || !reader.part() ||
            !reader.number(most_column, columns[count]) || (valued && !(reader.part() && reader.value(value))) ||
            !reader.line_end())
            return -1;
        values[count++] = value;
    }
    return count;
}

// The layer of lines that ascend by output, then input, and all have the same value other than 0: the form of the official
// files. One pass fills `indices`, 0-based, and `offsets` (neurons + 1). Returns the number of edges, or -1 for any other
// text, of which entries_of and its caller make a layer.
template <class T>
int64_t layer_of(const char* text, int64_t bytes, int64_t neurons, int64_t room, int64_t* offsets, T* indices,
                 float& common) {
    Reader reader{text, text + bytes, true};
    int64_t count = 0, before_row = 0, before_column = 0;
    std::fill_n(offsets, neurons + 1, 0);
    while (reader.at < reader.end) {
        if (*reader.at == '\n') {
            ++reader.at;
            continue;
        }
        int64_t row, column;
        float value;
        if (count == room || !reader.number(neurons, row) || !reader.part() || !reader.number(neurons, column) ||
            !reader.part() || !reader.value(value) || !reader.line_end())
            return -1;
        if (!count) common = value;
        const bool ascends = column > before_column || (column == before_column && row > before_row);
        if (!ascends || value != common || value == 0) return -1;
        indices[count++] = static_cast<T>(row - 1);
        ++offsets[column];
        before_row = row, before_column = column;
    }
    // Edges of each output become the place of its first one.
    for (int64_t j = 0; j < neurons; ++j) offsets[j + 1] += offsets[j];
    return count;
}

// A layer as lines, by output, then input. Not `valued`: all edges have values[0].
template <class T>
std::string text_of(const int64_t* offsets, int64_t outputs, const T* indices, const float* values, bool valued) {
    char target[24], weight[34], source[20];
    std::string text;
    text.reserve(24 * offsets[outputs]);
    // A common weight is formatted once for all edges.
    size_t width = valued || !offsets[outputs] ? 0 : decimal(values[0], weight);
    for (int64_t j = 0; j < outputs; ++j) {
        // An output's number is formatted once for all of its edges.
        char* end = std::to_chars(target + 1, target + sizeof target - 1, j + 1).ptr;
        target[0] = *end++ = '\t';
        for (int64_t e = offsets[j]; e < offsets[j + 1]; ++e) {
            if (valued) width = decimal(values[e], weight);
            weight[width] = '\n';
            // Append input, output and weight; numbers in the text count from 1.
            text.append(source, std::to_chars(source, source + sizeof source, int64_t{indices[e]} + 1).ptr - source);
            text.append(target, end - target).append(weight, width + 1);
        }
    }
    return text;
}

int64_t read_entries(nb::bytes text, bool tabs, bool valued, int64_t most_row, int64_t most_column,
                     Array<int64_t, 1> rows, Array<int64_t, 1> columns, Array<float, 1> values) {
    const int64_t room = rows.size();
    require(extent(columns) == room && extent(values) == room, "results must be as long as each other");
    const char* const lines = text.c_str();
    const int64_t bytes = text.size();
    nb::gil_scoped_release release;
    return entries_of(lines, bytes, tabs, valued, most_row, most_column, room, rows.data(), columns.data(),
                      values.data());
}

int64_t count_lines(nb::bytes text) {
    const char* const lines = text.c_str();
    const size_t bytes = text.size();
    nb::gil_scoped_release release;
    return std::count(lines, lines + bytes, '\n');
}

// (edges, their value); edges are -1 where the text is not as layer_of takes it.
std::pair<int64_t, float> read_layer(nb::bytes text, Array<int64_t, 1> offsets, Indices indices) {
    const int64_t neurons = extent(offsets) - 1, room = extent(indices);
    require(neurons >= 1, "offsets must be one more than neurons");
    require(neurons <= int64_t{1} << 8 * index_bytes(indices), "indices must have room for every neuron");
    const char* const lines = text.c_str();
    const int64_t bytes = text.size();
    float value = 0;
    nb::gil_scoped_release release;
    const int64_t edges = with_indices(
        indices, [&](auto* written) { return layer_of(lines, bytes, neurons, room, offsets.data(), written, value); });
    return {edges, value};
}

nb::bytes write_entries(Array<const int64_t, 1> offsets, ReadIndices indices, Array<const float, 1> values) {
    const int64_t outputs = offsets.size() - 1;
    require(offsets.size() >= 1 && offsets.data()[outputs] == extent(indices),
            "offsets must end at the number of edges");
    require(values.size() == 1 || values.size() == indices.size(), "values must be one or one an edge");
    const bool valued = values.size() == indices.size();
    index_bytes(indices);  // what it refuses, it refuses with the interpreter's lock
    std::string text;
    {
        nb::gil_scoped_release release;
        text = with_indices(indices,
                            [&](auto* read) { return text_of(offsets.data(), outputs, read, values.data(), valued); });
    }
    return nb::bytes(text.data(), text.size());
}

}  // namespace

void bind_text(nb::module_& m) {
    m.def("count_lines", &count_lines);
    m.def("read_entries", &read_entries);
    m.def("read_layer", &read_layer);
    m.def("write_entries", &write_entries);
}

}  // namespace spdnn
