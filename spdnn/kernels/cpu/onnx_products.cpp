// A pruned product as an operator of ONNX Runtime: a MatMul, Gemm or Conv whose weights are sparse, with bias and
// activation, on ONNX Runtime's own threads.
//
// Python makes a product from its weights and gets a key; a node `Product` of the domain spdnn has the key as an
// attribute, and ONNX Runtime, which loads this module as a library of operators, finds the product by it.
//
// Layout     Rows (..., inputs) are the `by_rows` form of spmm.hpp. Images (N, C, H, W) are N matrices (C, H W)
//            already.
// Algorithm  A convolution copies its input once, with the zeros around it, into planes of one remainder of its strides
//            each: (C, strides, H', W'). In those, a nonzero of the weights meets the inputs of all places side by
//            side, from an offset on; places past the end of a row are computed too, and left out (`pitch` of
//            spmm.hpp). So no window is copied. A 1 x 1 convolution without strides and zeros copies nothing.
// Not finite Zeros of the weights are left out, though 0 x infinity and 0 x NaN are NaN. Where features are not all
//            finite, the places that read such a one are computed once more, as the dense product has them.
// Source     Chen, "Escoin: Efficient Sparse Convolutional Neural Network Inference on GPUs", 2018 (offsets in place of
//            copied windows); Park et al., "Faster CNNs with Direct Sparse Convolutions and Guided Pruning", ICLR 2017.
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "onnx.hpp"
#include "ops_binding.hpp"
#include "spmm.hpp"

using namespace nb::literals;

namespace spdnn {

SPDNN_LEVELS(SpmmKernels, spmm);

namespace {

constexpr int64_t kSlack = 64;  // floats that can be read past the last plane
// What one thread does by itself: another one gains less than it takes to wake it and to pass lines between caches.
constexpr int64_t kFloats = 1 << 16, kMultiplyAdds = 1 << 17;

struct Window {                                                                                      // of a convolution
    int64_t channels, height, width, down, across, top, left, bottom, right, row_step, column_step;  // steps: dilations
};

struct Product {
    const SpmmKernels* kernels;
    int threads, tile;
    bool convolves, gemm;  // gemm: of two dimensions alone; features of one are a row
    Window window;
    int64_t rows, inner, groups;   // of the matrix: outputs, inputs x kernel, and parts that read each their own inputs
    std::vector<int64_t> offsets;  // rows + 1
    std::vector<int32_t> columns;  // of the matrix (outputs, channels x height x width)
    std::vector<uint16_t> narrow;  // the same where they fit
    std::vector<int32_t> order;
    std::vector<float> values, bias;
    float low, high;

    bool plain() const {  // a 1 x 1 convolution that reads its input where it lies
        const Window& w = window;
        return w.height * w.width == 1 && w.down == 1 && w.across == 1 && !(w.top | w.left | w.bottom | w.right);
    }
    SpmmProblem problem() const {
        SpmmProblem p{};
        const bool few = !narrow.empty();
        p.pattern = {rows,           inner,
                     offsets.data(), few ? static_cast<const void*>(narrow.data()) : columns.data(),
                     few ? 2 : 4,    order.data()};
        p.values = values.data(), p.bias = bias.data(), p.low = low, p.high = high, p.tile = tile, p.packed = true;
        return p;
    }
};

// Of the registry, of what each kernel keeps and of the domain; held for moments. A fork waits for it, so that it is open
// in the child, in which the thread that held it is not.
std::mutex lock;
[[maybe_unused]] const int registered_for_forks =
    pthread_atfork([] { lock.lock(); }, [] { lock.unlock(); }, [] { lock.unlock(); });
std::map<int64_t, std::shared_ptr<const Product>> registry;
int64_t next_key = 1;

// The planes of a convolution over images of one size, and where each nonzero begins in them.
struct Planes {
    int64_t image_height = -1, image_width = -1, height, width, out_height, out_width;  // height, width: of a plane
    std::vector<int32_t> begins;

    static std::shared_ptr<const Planes> of(const Product& product, int64_t image_height, int64_t image_width) {
        const Window& w = product.window;
        auto planes = std::make_shared<Planes>();
        // The padded image, and how far a dilated kernel reaches in it.
        const int64_t tall = image_height + w.top + w.bottom, wide = image_width + w.left + w.right;
        const int64_t reach_down = (w.height - 1) * w.row_step, reach_across = (w.width - 1) * w.column_step;
        if (tall <= reach_down || wide <= reach_across)
            throw std::invalid_argument("a kernel that is larger than the image");
        planes->image_height = image_height, planes->image_width = image_width;
        // Outputs along each axis, and planes that hold all that these read.
        planes->out_height = (tall - reach_down - 1) / w.down + 1,
        planes->out_width = (wide - reach_across - 1) / w.across + 1;
        planes->height = planes->out_height + reach_down / w.down,
        planes->width = planes->out_width + reach_across / w.across;
        const int64_t plane = planes->height * planes->width, strides = w.down * w.across;
        // Offsets are 32-bit: they take half the bandwidth of 64-bit ones.
        if (w.channels * strides * plane + kSlack > INT32_MAX)
            throw std::invalid_argument("an image of more than 2^31 numbers");
        planes->begins.resize(product.columns.size());
        // Decode each nonzero: its channel and the remainders of the strides select a plane, the quotients a place in
        // it.
        for (size_t e = 0; e < product.columns.size(); ++e) {
            const int64_t place = product.columns[e] % (w.height * w.width),
                          channel = product.columns[e] / (w.height * w.width);
            const int64_t down = place / w.width * w.row_step, across = place % w.width * w.column_step;
            const int64_t which = channel * strides + down % w.down * w.across + across % w.across;
            planes->begins[e] = static_cast<int32_t>(which * plane + down / w.down * planes->width + across / w.across);
        }
        return planes;
    }
};

// Channels of one image into their planes.
void copy_channels(const Window& w, const Planes& planes, int64_t channels, const float* image, float* to) {
    const int64_t place = planes.image_height * planes.image_width;
    // A plane for each remainder of the strides: what neighbouring outputs read is contiguous in it.
    for (int64_t r = 0; r < w.down; ++r)
        for (int64_t s = 0; s < w.across; ++s) {
            // of a plane, the lines and the places in a line that the image has; zeros surround them
            const auto inside = [](int64_t pad, int64_t at, int64_t step, int64_t size, int64_t most) {
                const int64_t begin = std::clamp<int64_t>((pad - at + step - 1) / step, 0, most);
                return std::pair(begin, std::clamp<int64_t>((size + pad - at + step - 1) / step, begin, most));
            };
            const auto [top, bottom] = inside(w.top, r, w.down, planes.image_height, planes.height);
            const auto [left, right] = inside(w.left, s, w.across, planes.image_width, planes.width);
            float* line = to + (r * w.across + s) * planes.height * planes.width;
            const float* from = image + (top * w.down + r - w.top) * planes.image_width + left * w.across + s - w.left;
            for (int64_t c = 0; c < channels;
                 ++c, line += w.down * w.across * planes.height * planes.width, from += place) {
                // Zeros above, then each line between zeros, then zeros below.
                float* at = std::fill_n(line, top * planes.width, 0.0f);
                const float* read = from;
                for (int64_t y = top; y < bottom; ++y, read += w.down * planes.image_width) {
                    for (int64_t x = 0; x < left; ++x) *at++ = 0;
                    // A step of 1 has its own loop, which the compiler turns into whole vectors.
                    if (w.across == 1)
                        for (int64_t x = 0; x < right - left; ++x) *at++ = read[x];
                    else
                        for (int64_t x = 0; x < right - left; ++x) *at++ = read[x * w.across];
                    for (int64_t x = right; x < planes.width; ++x) *at++ = 0;
                }
                std::fill_n(at, (planes.height - bottom) * planes.width, 0.0f);
            }
        }
}

bool finite(const float* x, int64_t count) {
    int32_t largest = 0, bits;  // without the sign: of what is not finite, all bits of the exponent are set
    for (int64_t i = 0; i < count; ++i)
        std::memcpy(&bits, x + i, sizeof bits), largest = std::max(largest, bits & INT32_MAX);
    return largest < 0x7f800000;
}

// The outputs of one place, as the dense product has them; nothing where the features it reads are finite.
void dense_outputs(const Product& product, const std::vector<float>& features, float* out, int64_t step) {
    const int64_t inputs = product.inner / product.groups, outputs = product.rows / product.groups;
    for (int64_t group = 0; group < product.groups; ++group) {
        const float *begin = features.data() + group * inputs, *end = begin + inputs;
        const auto infinite = [](float value) { return !std::isfinite(value); };
        const int64_t all = std::count_if(begin, end, infinite);
        for (int64_t row = group * outputs; all && row < (group + 1) * outputs; ++row) {
            float sum = product.bias[row];
            int64_t met = 0;
            for (int64_t e = product.offsets[row]; e < product.offsets[row + 1]; ++e) {
                sum += product.values[e] * features[product.columns[e]];
                met += infinite(features[product.columns[e]]);
            }
            if (met < all) sum = std::numeric_limits<float>::quiet_NaN();  // one of them met a zero
            out[row * step] = std::isnan(sum) ? sum : std::clamp(sum, product.low, product.high);
        }
    }
}

struct Failed {
    ort::Status status;
};

void check(ort::Status status) {
    if (status) throw Failed{status};
}

// One run of a node.
struct Run {
    ort::Api api;
    void* context;

    // work(part) for parts 0 .. parts - 1 on ONNX Runtime's threads.
    template <class Work>
    void each(int64_t parts, const Work& work) {
        if (parts == 1) return work(0);
        // An exception must not pass through the C frames of ONNX Runtime: note it and throw afterwards.
        struct Shared {
            const Work& work;
            std::atomic<bool> out_of_memory{false};
        } shared{work};
        auto one = [](void* data, size_t part) {
            auto& shared = *static_cast<Shared*>(data);
            try {
                shared.work(static_cast<int64_t>(part));
            } catch (const std::bad_alloc&) { shared.out_of_memory = true; }
        };
        check(ort::ParallelFor::call(api, context, +one, static_cast<size_t>(parts), static_cast<size_t>(parts),
                                     &shared));
        if (shared.out_of_memory) throw std::bad_alloc();
    }

    std::vector<int64_t> input(const float*& data) {
        const void* value = nullptr;
        void *shape = nullptr, *numbers = nullptr;
        size_t rank = 0;
        check(ort::Input::call(api, context, 0, &value));
        check(ort::TensorShape::call(api, value, &shape));
        ort::Status failed = ort::DimensionsCount::call(api, shape, &rank);
        std::vector<int64_t> dimensions(rank);
        if (!failed) failed = ort::Dimensions::call(api, shape, dimensions.data(), rank);
        // Release the shape before any error is reported.
        ort::ReleaseShape::call(api, shape);
        check(failed);
        check(ort::TensorData::call(api, const_cast<void*>(value), &numbers));
        data = static_cast<const float*>(numbers);
        return dimensions;
    }

    float* output(const std::vector<int64_t>& dimensions) {
        void *value = nullptr, *numbers = nullptr;
        check(ort::Output::call(api, context, 0, dimensions.data(), dimensions.size(), &value));
        check(ort::TensorData::call(api, value, &numbers));
        return static_cast<float*>(numbers);
    }
};

thread_local KeptMemory scratch;

// What ONNX Runtime makes of a node.
class Kernel {
  public:
    Kernel(ort::Api api, std::shared_ptr<const Product> product) : api(api), product(std::move(product)) {}

    void compute(void* context) {
        Run run{api, context};
        const float* x = nullptr;
        std::vector<int64_t> shape = run.input(x);
        product->convolves ? images(run, shape, x) : rows(run, shape, x);
    }

  private:
    void multiply(Run& run, const SpmmProblem& p) {
        // As many parts as have work worth waking a thread for.
        const double work = static_cast<double>(p.width) * p.batch * product->values.size();
        const int parts = static_cast<int>(std::clamp<double>(work / kMultiplyAdds, 1, product->threads));
        if (p.width && p.batch && p.pattern.rows)
            run.each(parts, [&](int64_t part) { product->kernels->part(p, static_cast<int>(part), parts); });
    }

    void rows(Run& run, std::vector<int64_t> shape, const float* x) {
        if (shape.empty() || shape.back() != product->inner)
            throw std::invalid_argument("another number of features than weights");
        if (product->gemm && shape.size() == 1) shape.insert(shape.begin(), 1);
        if (product->gemm && shape.size() > 2) throw std::invalid_argument("more than two dimensions");
        shape.back() = product->rows;
        SpmmProblem p = product->problem();
        // All leading dimensions together are the batch, each input a row in memory.
        p.width = std::accumulate(shape.begin(), shape.end() - 1, int64_t{1}, std::multiplies<>());
        float* const out = run.output(shape);
        p.batch = 1, p.by_rows = p.width > 1, p.b = x, p.c = out;
        multiply(run, p);
        if (finite(x, p.width * product->inner)) return;
        for (int64_t row = 0; row < p.width; ++row) {
            const std::vector<float> features(x + row * product->inner, x + (row + 1) * product->inner);
            dense_outputs(*product, features, out + row * product->rows, 1);
        }
    }

    // Every place of images whose features are not all finite, as the dense product has it.
    void complete(const std::vector<int64_t>& shape, const float* x, int64_t height, int64_t width, float* out) {
        const Window& w = product->window;
        std::vector<float> features(product->inner);
        for (int64_t place = 0; place < shape[0] * height * width; ++place) {
            const int64_t image = place / (height * width), y = place / width % height, column = place % width;
            for (int64_t k = 0; k < product->inner; ++k) {
                const int64_t channel = k / (w.height * w.width);
                const int64_t at_y = y * w.down - w.top + k / w.width % w.height * w.row_step;
                const int64_t at_x = column * w.across - w.left + k % w.width * w.column_step;
                const bool inside = at_y >= 0 && at_y < shape[2] && at_x >= 0 && at_x < shape[3];
                const int64_t line = (image * w.channels + channel) * shape[2] + at_y;
                features[k] = inside ? x[line * shape[3] + at_x] : 0.0f;
            }
            float* const first = out + image * product->rows * height * width + place % (height * width);
            dense_outputs(*product, features, first, height * width);
        }
    }

    void images(Run& run, std::vector<int64_t> shape, const float* x) {
        const Window& w = product->window;
        if (shape.size() != 4 || shape[1] != w.channels)
            throw std::invalid_argument("other channels than those of the weights");
        SpmmProblem p = product->problem();
        p.batch = shape[0];
        // 1 x 1 without strides and pads: the image is the dense matrix already.
        if (product->plain()) {
            p.width = shape[2] * shape[3], p.b = x;
            float* const out = run.output({shape[0], product->rows, shape[2], shape[3]});
            p.c = out;
            multiply(run, p);
            if (!finite(x, p.batch * w.channels * p.width)) complete(shape, x, shape[2], shape[3], out);
            return;
        }
        // Otherwise copy the image into padded planes, once for all nonzeros.
        const auto planes = planes_of(shape[2], shape[3]);
        const int64_t image = shape[2] * shape[3], copied = w.down * w.across * planes->height * planes->width,
                      all = p.batch * w.channels;
        float* const inputs = scratch.floats(all * copied + kSlack);
        // Whole vectors may read past the last plane: clear what they find.
        std::fill(inputs + all * copied, inputs + all * copied + kSlack, 0.0f);
        float* const out = run.output({shape[0], product->rows, planes->out_height, planes->out_width});
        p.c = out;
        if (!all || !p.pattern.rows) return;
        // Channels are copied in parallel where they are worth it.
        const int64_t parts = all * copied < kFloats ? 1 : std::min<int64_t>(all, product->threads);
        run.each(parts, [&](int64_t part) {
            const int64_t begin = all * part / parts, end = all * (part + 1) / parts;
            copy_channels(w, *planes, end - begin, x + begin * image, inputs + begin * copied);
        });
        // Multiply in place: columns become offsets into the planes; places past the end of a line are dropped.
        p.pattern.columns = planes->begins.data(), p.pattern.index_bytes = 4;
        p.width = planes->out_height * planes->width, p.pitch = planes->width, p.used = planes->out_width;
        p.b = inputs, p.b_stride = w.channels * copied;
        multiply(run, p);
        if (!finite(x, all * image)) complete(shape, x, planes->out_height, planes->out_width, out);
    }

    std::shared_ptr<const Planes> planes_of(int64_t height, int64_t width) {
        // Keep the offsets of the latest image size: mostly the next run has it, too.
        std::unique_lock<std::mutex> guard(lock);
        std::shared_ptr<const Planes> planes = last;
        if (planes && planes->image_height == height && planes->image_width == width) return planes;
        guard.unlock();
        planes = Planes::of(*product, height, width);
        guard.lock();
        return last = planes;
    }

  public:
    const ort::Api api;

  private:
    const std::shared_ptr<const Product> product;
    std::shared_ptr<const Planes> last;
};

// body(), whose exceptions ONNX Runtime gets as a status.
template <class Body>
ort::Status guarded(ort::Api api, const Body& body) {
    try {
        body();
        return nullptr;
    } catch (const Failed& failed) { return failed.status; } catch (const std::bad_alloc&) {
        return ort::CreateStatus::call(api, ort::kFail, "spdnn: there is too little memory");
    } catch (const std::exception& error) {
        return ort::CreateStatus::call(api, ort::kInvalidArgument, (std::string("spdnn: ") + error.what()).c_str());
    }
}

ort::Status create_kernel(const ort::CustomOp*, ort::Api api, const void* info, void** kernel) {
    return guarded(api, [&] {
        int64_t key = 0;
        check(ort::IntAttribute::call(api, info, "key", &key));
        const std::lock_guard<std::mutex> guard(lock);
        const auto found = registry.find(key);
        if (found == registry.end()) throw std::invalid_argument("a product that is not in this process");
        *kernel = new Kernel(api, found->second);
    });
}

struct Operator : ort::CustomOp {
    Operator() : ort::CustomOp{} {
        version = 16;
        name = [](const ort::CustomOp*) { return "Product"; };
        provider = [](const ort::CustomOp*) -> const char* { return nullptr; };  // the processor
        input_type = output_type = [](const ort::CustomOp*, size_t) { return ort::kFloat; };
        inputs = outputs = [](const ort::CustomOp*) { return size_t{1}; };
        input_kind = output_kind = input_memory = [](const ort::CustomOp*, size_t) { return 0; };
        for (auto& one : variadic) one = [](const ort::CustomOp*) { return 0; };
        destroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
        create_or_fail = create_kernel;
        compute_or_fail = [](void* kernel, void* context) {
            auto& one = *static_cast<Kernel*>(kernel);
            return guarded(one.api, [&] { one.compute(context); });
        };
    }
};

const Operator product_operator;

// A key for a product of `weights` (outputs, inputs of a group x kernel) in CSR form.
int64_t make_product(const std::string& level, Array<const int64_t, 1> offsets, Array<const int32_t, 1> columns,
                     Array<const float, 1> values, Array<const float, 1> bias, float low, float high, int64_t inner,
                     std::optional<std::array<int64_t, 12>> window, bool gemm, int tile, int threads) {
    auto product = std::make_shared<Product>();
    product->kernels = &at_level(spmm_levels, level);
    require(tile == 16 || tile == 32 || tile == 64 || tile == 128, "tile must be 16, 32, 64 or 128");
    require(threads >= 1, "no threads");
    product->rows = extent(bias), product->inner = inner;
    product->order.resize(product->rows);
    std::iota(product->order.begin(), product->order.end(), 0);
    rows_of(offsets, Array<const int32_t, 1>(product->order.data(), {product->order.size()}));  // checks them
    require(columns.size() == values.size() && offsets.data()[product->rows] == extent(values),
            "a column for each value");
    // The kernels trust their indices, so each is checked here, once.
    for (size_t e = 0; e < columns.size(); ++e)
        require(columns.data()[e] >= 0 && columns.data()[e] < inner, "a column is out of range");
    product->offsets.assign(offsets.data(), offsets.data() + offsets.size());
    product->columns.assign(columns.data(), columns.data() + columns.size());
    // Half the index bandwidth where 16 bits are enough.
    if (inner <= 65536) product->narrow.assign(columns.data(), columns.data() + columns.size());
    product->values.assign(values.data(), values.data() + values.size());
    product->bias.assign(bias.data(), bias.data() + bias.size());
    product->low = low, product->high = high, product->tile = tile, product->threads = threads;
    product->convolves = window.has_value(), product->gemm = gemm, product->groups = window ? window->back() : 1;
    if (window) {
        const auto& w = *window;
        product->window = {w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10]};
        require(w[0] >= 1 && w[1] >= 1 && w[2] >= 1 && w[3] >= 1 && w[4] >= 1 && w[9] >= 1 && w[10] >= 1,
                "sizes of a window from 1");
        require(w[5] >= 0 && w[6] >= 0 && w[7] >= 0 && w[8] >= 0, "pads from 0");
        require(w[0] * w[1] * w[2] == inner, "channels x height x width are the columns of the weights");
        require(w[11] >= 1 && inner % w[11] == 0 && product->rows % w[11] == 0, "groups of equal size");
    }
    const std::lock_guard<std::mutex> guard(lock);
    registry.emplace(next_key, std::move(product));
    return next_key++;
}

void drop_product(int64_t key) {  // sessions that have it keep it
    const std::lock_guard<std::mutex> guard(lock);
    registry.erase(key);
}

}  // namespace

void bind_onnx(nb::module_& m) {
    m.def("make_product", &make_product, "level"_a, "offsets"_a, "columns"_a, "values"_a, "bias"_a, "low"_a, "high"_a,
          "inner"_a, "window"_a.none(), "gemm"_a, "tile"_a, "threads"_a,
          "A key of a product for nodes `Product` of ONNX Runtime. `window`: (channels, height, width, strides, pads "
          "at the top, left, bottom and "
          "right, dilations, groups) of a convolution.");
    m.def("drop_product", &drop_product, "key"_a, "No session that is made from now on finds the product.");
}

}  // namespace spdnn

// What ONNX Runtime calls in a library of operators.
extern "C" __attribute__((visibility("default"))) spdnn::ort::Status RegisterCustomOps(
    void* options, const spdnn::ort::ApiBase* base) {
    using namespace spdnn;
    static void* domain = nullptr;
    const ort::Api api = base->api(ort::kVersion);
    if (!api)
        // An older ONNX Runtime gets a sentence through the oldest interface, which keeps its entries.
        return base->api(1)
                   ? ort::CreateStatus::call(base->api(1), ort::kFail, "spdnn: ONNX Runtime 1.17 or newer is needed")
                   : nullptr;
    const std::lock_guard<std::mutex> guard(lock);
    return guarded(api, [&] {
        // The domain is made once in a process and added to every session's options.
        if (!domain) {
            check(ort::CreateDomain::call(api, "spdnn", &domain));
            check(ort::AddOperator::call(api, domain, &product_operator));
        }
        check(ort::AddDomain::call(api, options, domain));
    });
}
