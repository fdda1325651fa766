// Depthwise convolutions of 3 x 3, padding 1, stride 1 or 2, with bias and activation. Compiled once for each level.
//
// Algorithm  A sum starts at the bias and takes the nine products in reading order; what lies outside of an image is 0.
//            NCHW: lanes are neighbouring outputs of a row. A plane is copied first, with zeros around it (float16:
//            widened; stride 2: even and odd pixels apart), so no output is at an edge and all loads are contiguous.
//            NHWC: lanes are neighbouring channels; nine weights stay in registers along a row of outputs, and an input
//            outside of the image is a vector of zeros.
// Threads    Planes (NCHW) or rows of outputs (NHWC) in equal ranges.
// Macros     SPDNN_LEVEL (name), SPDNN_VECTOR_BYTES (16, 32, 64).
#include "lanes.hpp"
#include "ops_kernels.hpp"

namespace spdnn {
namespace {

using namespace SPDNN_LEVEL;

// y < low ? low : (y > high ? high : y), so NaN stays; `nan` remembers it.
struct Epilogue {
    Vec low, high, nan = {};
    Epilogue(float low_, float high_) : low(broadcast(low_)), high(broadcast(high_)) {}
    Vec operator()(Vec y) {
        nan = y != y ? y : nan;
        return y < low ? low : (y > high ? high : y);
    }
};

// The first `count` lanes, and zeros.
inline Vec first_of(Vec x, int64_t count) {
    alignas(64) static constexpr auto kNumbers = [] {
        struct {
            int32_t lane[kLanes];
        } numbers{};
        for (int i = 0; i < kLanes; ++i) numbers.lane[i] = i;
        return numbers;
    }();
    return *reinterpret_cast<const IntVec*>(&kNumbers) < static_cast<int32_t>(count) ? x : Vec{};
}

thread_local KeptMemory kept;

// Of the lanes of two vectors side by side.
constexpr int even_lane(int i) { return 2 * i; }
constexpr int odd_lane(int i) { return 2 * i + 1; }

// A plane with zeros around it, as float32; with stride 2 a row is its even positions, then its odd ones. Pixel x is at
// position x + 1. The whole plane is copied before it is read: loads across stores still under way would wait for
// these.
template <class Real>
struct Plane {
    const Depthwise<Real>& work;
    // With room behind the even positions for the zeros of a whole vector, which would else fall onto odd ones.
    const int64_t half = padded((work.width + 1) / work.stride + 2) + (work.stride - 1) * kLanes,
                  pitch = half * work.stride;

    int64_t floats() const { return (work.height + 2) * pitch + 2 * kLanes; }  // loads and stores pass the end of a row

    // Lanes past the last pixel are zeros; where these fall into the next row, that begins with a zero.
    void copy(const Real* from, float* to) const {
        for (int64_t y = 0; y < work.height; ++y, from += work.width) {
            // The frame around the pixels was cleared once; what is stored past a row's end are zeros, too.
            float* row = to + (y + 1) * pitch;
            if (work.stride == 1) {
                // Stride 1: copy one position to the right, behind the zero of the frame.
                for (int64_t x = 0; x < work.width; x += kLanes)
                    store(load_part(from + x, work.width - x), row + 1 + x);
            } else {
                // Stride 2: deinterleave, so that a tap of neighbouring outputs is contiguous.
                for (int64_t x = 0; x < work.width; x += 2 * kLanes) {
                    const Vec a = load_part(from + x, work.width - x);
                    const Vec b =
                        work.width - x > kLanes ? load_part(from + x + kLanes, work.width - x - kLanes) : Vec{};
                    store(shuffled<odd_lane>(a, b), row + x / 2 + 1);
                    store(shuffled<even_lane>(a, b), row + half + x / 2);
                }
            }
        }
    }

    void run(int64_t plane, float* copied, Epilogue& epilogue) const {
        const int64_t channel = plane % work.channels, outs = work.out_width();
        copy(work.x + plane * work.height * work.width, copied);
        Real* out = work.out + plane * work.out_height() * outs;
        // The nine weights and the bias stay in registers for the whole plane.
        Vec weight[9];
        for (int i = 0; i < 9; ++i) weight[i] = broadcast(load_part(work.weights + channel * 9 + i, 1)[0]);
        const Vec bias = broadcast(work.bias[channel]);
        // Positions 0, 1, 2 are neighbours at stride 1; at stride 2 they are even, odd, the next even one.
        const int64_t second = work.stride == 1 ? 1 : half, third = work.stride == 1 ? 2 : 1;  // taps of a row
        for (int64_t y = 0; y < work.out_height(); ++y, out += outs) {
            const float* row = copied + y * work.stride * pitch;
            auto at = [&](int64_t o) __attribute__((always_inline)) {
                // One chain of nine multiply-adds in reading order; the outputs in the lanes are independent.
                Vec sum = bias;
                for (int i = 0; i < 3; ++i) {
                    const float* taps = row + i * pitch + o;
                    sum = multiply_add(weight[3 * i], load(taps), sum);
                    sum = multiply_add(weight[3 * i + 1], load(taps + second), sum);
                    sum = multiply_add(weight[3 * i + 2], load(taps + third), sum);
                }
                return sum;
            };
            // Whole vectors of outputs, then a masked one.
            int64_t o = 0;
            for (; o + kLanes <= outs; o += kLanes) store(epilogue(at(o)), out + o);
            if (o < outs) {  // lanes past the last are a row's end and the next one's: no part of any output
                // Clear the lanes of no output, so that a NaN in them is not reported.
                const Vec y_ = first_of(at(o), outs - o);
                store_part(epilogue(y_), out + o, outs - o);
            }
        }
    }
};

template <class Real>
bool planes(const Depthwise<Real>& work, double* busy, int threads) {
    const Plane<Real> plane{work};
    const int64_t all = work.images * work.channels, room = padded(plane.floats()) + kLanes;
    // A padded copy of one plane for each thread, reused from plane to plane, so that it stays in the cache.
    float* const copies = kept.floats(room * threads);
    bool nan = false;
#pragma omp parallel num_threads(threads) reduction(|| : nan)
    own_shares(threads, busy, [&](int t) {
        Epilogue epilogue(work.low, work.high);
        std::fill(copies + t * room, copies + (t + 1) * room, 0.0f);
        for (int64_t p = all * t / threads; p < all * (t + 1) / threads; ++p) plane.run(p, copies + t * room, epilogue);
        nan |= any_nan(epilogue.nan);
    });
    return nan;
}

// A row of outputs of neighbouring channels; weights (9, channels padded) as float32. kWhole: `left` channels are a
// vector or more.
template <bool kWhole, class Real>
void channels_row(const Depthwise<Real>& work, int64_t image, int64_t y, int64_t c, const float* weights,
                  const Real* zeros, Epilogue& epilogue) {
    const int64_t channels = work.channels, outs = work.out_width(), pitch = padded(channels), left = channels - c;
    auto read = [&](const Real* from) { return kWhole ? load(from) : load_part(from, left); };
    Real* out = work.out + (image * work.out_height() + y) * outs * channels + c;
    const Real* rows[3];
    int64_t steps[3];  // from pixel to pixel; a row outside of the image is one vector of zeros
    // Rows above and below the image read zeros, so the loop over outputs has no test of rows.
    for (int i = 0; i < 3; ++i) {
        const int64_t row = y * work.stride + i - 1;
        const bool inside = row >= 0 && row < work.height;
        rows[i] = inside ? work.x + (image * work.height + row) * work.width * channels + c : zeros;
        steps[i] = inside ? channels : 0;
    }
    // Weights of these channels stay in registers along the row.
    Vec weight[9];
    for (int i = 0; i < 9; ++i) weight[i] = load(weights + i * pitch + c);
    const Vec bias = load_part(work.bias + c, left);
    auto put = [&](int64_t o, Vec sum) __attribute__((always_inline)) {
        if (kWhole) store(epilogue(sum), out + o * channels);
        else store_part(epilogue(sum), out + o * channels, left);
    };
    // Only outputs at the left and right edge test every column.
    auto at_edge = [&](int64_t o) {
        Vec sum = bias;
        for (int i = 0; i < 9; ++i) {
            const int64_t column = o * work.stride + i % 3 - 1;
            const bool inside = column >= 0 && column < work.width;
            sum = multiply_add(weight[i], read(inside ? rows[i / 3] + column * steps[i / 3] : zeros), sum);
        }
        put(o, sum);
    };
    // Left edge, interior without tests, right edge.
    at_edge(0);
    int64_t o = 1;
    for (; o * work.stride + 1 < work.width; ++o) {
        Vec sum = bias;
#pragma GCC unroll 3
        for (int i = 0; i < 3; ++i) {
            const Real* taps = rows[i] + (o * work.stride - 1) * steps[i];
            sum = multiply_add(weight[3 * i], read(taps), sum);
            sum = multiply_add(weight[3 * i + 1], read(taps + steps[i]), sum);
            sum = multiply_add(weight[3 * i + 2], read(taps + 2 * steps[i]), sum);
        }
        put(o, sum);
    }
    for (; o < outs; ++o) at_edge(o);
}

template <class Real>
bool channels_last(const Depthwise<Real>& work, double* busy, int threads) {
    const int64_t rows = work.images * work.out_height(), pitch = padded(work.channels);
    float* const weights = kept.floats(9 * pitch);
    // Transpose the weights: lanes are channels, padded with zeros to whole vectors.
    std::fill(weights, weights + 9 * pitch, 0.0f);
    for (int64_t c = 0; c < work.channels; ++c)
        for (int i = 0; i < 9; ++i) weights[i * pitch + c] = load_part(work.weights + c * 9 + i, 1)[0];
    const Real zeros[kLanes] = {};
    bool nan = false;
#pragma omp parallel num_threads(threads) reduction(|| : nan)
    own_shares(threads, busy, [&](int t) {
        Epilogue epilogue(work.low, work.high);
        for (int64_t r = rows * t / threads; r < rows * (t + 1) / threads; ++r)
            for (int64_t c = 0; c < work.channels; c += kLanes) {
                // Whole vectors of channels have an instance without masks.
                const auto run = work.channels - c >= kLanes ? channels_row<true, Real> : channels_row<false, Real>;
                run(work, r / work.out_height(), r % work.out_height(), c, weights, zeros, epilogue);
            }
        nan |= any_nan(epilogue.nan);
    });
    return nan;
}

template <class Real>
bool depthwise(const Depthwise<Real>& work, double* busy, int threads) {
    std::fill(busy, busy + threads, 0.0);
    return work.nhwc ? channels_last(work, busy, threads) : planes(work, busy, threads);
}

}  // namespace

extern const DepthwiseLevel SPDNN_JOIN(depthwise_, SPDNN_LEVEL);
const DepthwiseLevel SPDNN_JOIN(depthwise_, SPDNN_LEVEL) = {SPDNN_STRING(SPDNN_LEVEL), depthwise<float>,
                                                            depthwise<uint16_t>};

}  // namespace spdnn
