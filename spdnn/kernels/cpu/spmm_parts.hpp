// How the work of a sparse times dense product is cut: columns into tiles, all of it into parts for threads.
//
// All work is one line: panels (a tile of columns of one B), in each the rows as `order` has them, in each the vectors
// of the tile. It is cut into parts of equal work, nonzeros + kRowCost a row, at vectors of a row: so a row that is
// more work than a part is no obstacle, and a part is off by half a vector's share of a row at each end. Every thread
// finds its own part from the lengths of the rows, so nothing is prepared, and the parts are the same in every run.
#pragma once

#include "half.hpp"
#include "spmm.hpp"

#include <algorithm>

namespace spdnn {
namespace SPDNN_LEVEL {

constexpr int64_t kRowCost = 2;  // of a row on top of its nonzeros, in nonzeros

typedef float Quarter __attribute__((vector_size(16)));
typedef float Octet __attribute__((vector_size(SPDNN_VECTOR_BYTES < 32 ? 16 : 32)));  // where there are no 8 lanes, 4

// Lanes of the vectors that a product of this width is computed with: no wider than there are columns.
inline int lanes_for(int64_t width) { return width == 1 ? 1 : width <= 4 ? 4 : width <= 8 ? lanes<Octet> : kLanes; }

// How columns are cut into tiles: whole vectors, as even as they can be.
struct Tiles {
    int64_t width, lanes, vectors, count;

    Tiles(int64_t width, int tile) : width(width), lanes(lanes_for(width)), vectors((width + lanes - 1) / lanes) {
        // As few tiles as the limit allows; vectors are then spread evenly among them.
        const int64_t most = std::max<int64_t>(1, tile / lanes);
        count = (vectors + most - 1) / most;
    }
    int64_t first(int64_t t) const { return vectors * t / count; }  // vector of tile t
    int64_t vectors_of(int64_t t) const { return first(t + 1) - first(t); }
};

// A position on the line of all work.
struct Position {
    int64_t panel, row, vector;
};

inline int64_t edges_of(const SpmmProblem& p, int64_t i) {
    return p.pattern.offsets[p.pattern.order[i] + 1] - p.pattern.offsets[p.pattern.order[i]];
}

// Where part k of `parts` begins in `all`; the product is not formed, for it may be past 64 bits.
inline int64_t begin_of(int64_t all, int64_t k, int64_t parts) { return all / parts * k + all % parts * k / parts; }

// Where part k of `parts` begins on the line.
inline Position cut(const SpmmProblem& p, const Tiles& tiles, int64_t k, int64_t parts) {
    if (k == parts) return {p.batch * tiles.count, 0, 0};
    const int64_t rows_work = p.pattern.offsets[p.pattern.rows] + kRowCost * p.pattern.rows,
                  one = rows_work * tiles.vectors;  // one: all panels of a B
    // Skip whole matrices by division: all cost the same.
    int64_t left = begin_of(one * p.batch, k, parts), panel = left / one * tiles.count;
    left %= one;
    // Skip whole panels: their tiles may differ by one vector.
    for (int64_t work = 0;; ++panel, left -= work) {
        work = rows_work * tiles.vectors_of(panel % tiles.count);
        if (left < work) break;
    }
    const int64_t vectors = tiles.vectors_of(panel % tiles.count);
    if (left == 0) return {panel, 0, 0};
    // Skip whole rows, up to the one that contains the cut.
    for (int64_t row = 0, work = 0; row < p.pattern.rows; ++row, left -= work) {
        work = (edges_of(p, row) + kRowCost) * vectors;
        if (left >= work) continue;
        // Cut inside a row between vectors, so that a single long row can be shared by threads.
        const int64_t vector = (2 * left * vectors + work) / (2 * work);  // the nearest
        return vector < vectors ? Position{panel, row, vector}
                                : Position{panel + (row + 1 == p.pattern.rows), (row + 1) % p.pattern.rows, 0};
    }
    return {panel + 1, 0, 0};
}

// pieces(panel, first row, last row, first vector, last vector) for all work between two positions.
template <class Pieces>
void walk(const SpmmProblem& p, const Tiles& tiles, Position from, Position to, Pieces pieces) {
    while (from.panel < to.panel || (from.panel == to.panel && (from.row < to.row || from.vector < to.vector))) {
        const int64_t vectors = tiles.vectors_of(from.panel % tiles.count);
        const bool last_panel = from.panel == to.panel;
        if (from.vector > 0 || (last_panel && from.row == to.row)) {  // a part of a row
            // Head or tail of a row that was cut: some vectors of it.
            const int64_t end = last_panel && from.row == to.row ? to.vector : vectors;
            pieces(from.panel, from.row, from.row + 1, from.vector, end);
            from = end == vectors ? Position{from.panel, from.row + 1, 0} : Position{from.panel, from.row, end};
        } else {
            // Whole rows to the end of the part or of the panel, all vectors at once.
            const int64_t end = last_panel ? to.row : p.pattern.rows;
            pieces(from.panel, from.row, end, int64_t{0}, vectors);
            from.row = end;
        }
        if (from.row == p.pattern.rows) from = {from.panel + 1, 0, 0};
    }
}

}  // namespace SPDNN_LEVEL
}  // namespace spdnn
