// The part of ONNX Runtime's C interface that custom operators need, without its headers, which its wheel has not.
//
// OrtApi is a table of functions that only ever grows at its end: ONNX Runtime promises that an entry keeps its number
// and its type (its own static_asserts pin the sizes of versions 1 to 17). The numbers here are those of version 17.
// Source     onnxruntime_c_api.h of ONNX Runtime, MIT licence.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spdnn {
namespace ort {

using Status = void*;  // null: all is well
using Api = void* const*;

struct ApiBase {
    Api (*api)(uint32_t version);
    const char* (*version)();
};

constexpr uint32_t kVersion = 17;  // of the interface, from ONNX Runtime 1.17 on
constexpr int kInvalidArgument = 2, kFail = 1, kFloat = 1;

template <class Function, int kNumber>
struct Entry {
    template <class... Arguments>
    static auto call(Api api, Arguments... arguments) {
        return reinterpret_cast<Function>(api[kNumber])(arguments...);
    }
};

using CreateStatus = Entry<Status (*)(int code, const char* text), 0>;
using CreateDomain = Entry<Status (*)(const char* name, void** domain), 26>;
using AddOperator = Entry<Status (*)(void* domain, const void* op), 27>;
using AddDomain = Entry<Status (*)(void* options, void* domain), 28>;
using TensorData = Entry<Status (*)(void* value, void** data), 51>;
using DimensionsCount = Entry<Status (*)(const void* shape, size_t* count), 61>;
using Dimensions = Entry<Status (*)(const void* shape, int64_t* dimensions, size_t count), 62>;
using TensorShape = Entry<Status (*)(const void* value, void** shape), 65>;
using IntAttribute = Entry<Status (*)(const void* info, const char* name, int64_t* value), 86>;
using Input = Entry<Status (*)(const void* context, size_t number, const void** value), 90>;
using Output =
    Entry<Status (*)(void* context, size_t number, const int64_t* dimensions, size_t count, void** value), 91>;
using ReleaseStatus = Entry<void (*)(Status), 93>;
using ReleaseShape = Entry<void (*)(void* shape), 99>;
using ParallelFor =
    Entry<Status (*)(const void* context, void (*work)(void*, size_t), size_t count, size_t parts, void* data), 274>;

// What an operator is, as of version 16 of the interface; ONNX Runtime reads no more of it than `version` says.
struct CustomOp {
    uint32_t version;
    void* create;
    const char* (*name)(const CustomOp*);
    const char* (*provider)(const CustomOp*);
    int (*input_type)(const CustomOp*, size_t);
    size_t (*inputs)(const CustomOp*);
    int (*output_type)(const CustomOp*, size_t);
    size_t (*outputs)(const CustomOp*);
    void* compute;
    void (*destroy)(void* kernel);
    int (*input_kind)(const CustomOp*, size_t);  // 0 required, 1 optional, 2 variadic
    int (*output_kind)(const CustomOp*, size_t);
    int (*input_memory)(const CustomOp*, size_t);
    int (*variadic[4])(const CustomOp*);  // least number of inputs, whether they are alike; the same of outputs
    Status (*create_or_fail)(const CustomOp*, Api, const void* info, void** kernel);
    Status (*compute_or_fail)(void* kernel, void* context);
};

}  // namespace ort
}  // namespace spdnn
