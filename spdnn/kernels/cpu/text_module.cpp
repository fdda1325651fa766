// Text of entries, `row column value` a line (spdnn/formats/lines.py, text.py): the part of spdnn.kernels._cpu that reads
// and writes it. One thread: layers are files of their own, and callers have a thread each.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

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
        if (left > last.size() && !last.empty() && !std::memcmp(at, last.data(), last.size()) &&
            (at[last.size()] == '\n' || at[last.size()] == '\r')) {
            at += last.size(), result = last_value;
            return true;
        }
        const char *const begin = at, *first = begin + (begin < end && *begin == '+');
        const char* const digits = first + (first == begin && first < end && *first == '-');
        if (digits >= end || !(is_digit(*digits) || (*digits == '.' && digits + 1 < end && is_digit(digits[1])))) return false;
        double number;
        const auto [stop, error] = std::from_chars(first, end, number);
        result = static_cast<float>(number);
        if (error != std::errc() || !std::isfinite(result)) return false;
        at = stop, last = {begin, static_cast<size_t>(stop - begin)}, last_value = result;
        return true;
    }

    bool line_end() {
        while (!tabs && blank()) ++at;
        if (at < end && *at == '\r') {
            if (++at == end || *at != '\n') return false;
        }
        return at == end || *at++ == '\n';
    }
};

// The entries of some lines, 1-based, in their order; empty lines hold none. Returns how many there are, or -1 where
// anything is not as usual: which line, and whether it is wrong, is for the strict parser to say.
int64_t read_entries(nb::bytes text, bool tabs, bool valued, int64_t most_row, int64_t most_column, Array<int64_t, 1> rows,
                     Array<int64_t, 1> columns, Array<float, 1> values) {
    const int64_t room = rows.size();
    require(static_cast<int64_t>(columns.size()) == room && static_cast<int64_t>(values.size()) == room, "results must be as long as each other");
    Reader reader{text.c_str(), text.c_str() + text.size(), tabs};
    nb::gil_scoped_release release;
    int64_t count = 0;
    while (reader.at < reader.end) {
        if (*reader.at == '\n') {
            ++reader.at;
            continue;
        }
        while (!tabs && reader.blank()) ++reader.at;
        float value = 1;
        if (count == room || !reader.number(most_row, rows.data()[count]) || !reader.part() ||
            !reader.number(most_column, columns.data()[count]) || (valued && !(reader.part() && reader.value(value))) || !reader.line_end())
            return -1;
        values.data()[count++] = value;
    }
    return count;
}

// A value as `%e` where that is the same float32, else as `%.8e`, which always is.
size_t decimal(float value, char* to) {
    for (int precision : {6, 8}) {
        char* const end = std::to_chars(to, to + 32, static_cast<double>(value), std::chars_format::scientific, precision).ptr;
        double read;
        std::from_chars(to, end, read);
        if (precision == 8 || static_cast<float>(read) == value) return end - to;
    }
    return 0;
}

template <class T>
std::string written(const int64_t* offsets, int64_t outputs, const T* indices, const float* values, bool valued) {
    char target[24], weight[34], source[20];
    std::string text;
    text.reserve(24 * offsets[outputs]);
    size_t width = valued || !offsets[outputs] ? 0 : decimal(values[0], weight);
    for (int64_t j = 0; j < outputs; ++j) {
        char* end = std::to_chars(target + 1, target + sizeof target - 1, j + 1).ptr;
        target[0] = *end++ = '\t';
        for (int64_t e = offsets[j]; e < offsets[j + 1]; ++e) {
            if (valued) width = decimal(values[e], weight);
            weight[width] = '\n';
            text.append(source, std::to_chars(source, source + sizeof source, int64_t{indices[e]} + 1).ptr - source);
            text.append(target, end - target).append(weight, width + 1);
        }
    }
    return text;
}

// A layer as lines, by output, then input.
nb::bytes write_entries(Array<const int64_t, 1> offsets, ReadIndices indices, Array<const float, 1> values) {
    const int64_t outputs = offsets.size() - 1;
    require(offsets.size() >= 1 && offsets.data()[outputs] == static_cast<int64_t>(indices.size()), "offsets must end at the number of edges");
    require(values.size() == 1 || values.size() == indices.size(), "values must be one or one an edge");
    const bool valued = values.size() == indices.size();
    index_bytes(indices);  // what it refuses, it refuses with the interpreter's lock
    std::string text;
    {
        nb::gil_scoped_release release;
        text = with_indices(indices, [&](auto* read) { return written(offsets.data(), outputs, read, values.data(), valued); });
    }
    return nb::bytes(text.data(), text.size());
}

}  // namespace

void bind_text(nb::module_& m) {
    m.def("read_entries", &read_entries);
    m.def("write_entries", &write_entries);
}

}  // namespace spdnn
