// The part of the Python module spdnn.kernels._cpu that reads and writes text of entries.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <string>

#include "binding.hpp"
#include "text.hpp"

namespace spdnn {
namespace {

int64_t read_entries(nb::bytes text, bool tabs, bool valued, int64_t most_row, int64_t most_column,
                     Array<int64_t, 1> rows, Array<int64_t, 1> columns, Array<float, 1> values) {
    const int64_t room = rows.size();
    require(static_cast<int64_t>(columns.size()) == room && static_cast<int64_t>(values.size()) == room,
            "results must be as long as each other");
    const char* const lines = text.c_str();
    const int64_t bytes = text.size();
    nb::gil_scoped_release release;
    return entries_of(lines, bytes, tabs, valued, most_row, most_column, room, rows.data(), columns.data(),
                      values.data());
}

nb::bytes write_entries(Array<const int64_t, 1> offsets, ReadIndices indices, Array<const float, 1> values) {
    const int64_t outputs = offsets.size() - 1;
    require(offsets.size() >= 1 && offsets.data()[outputs] == static_cast<int64_t>(indices.size()),
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
    m.def("read_entries", &read_entries);
    m.def("write_entries", &write_entries);
}

}  // namespace spdnn
