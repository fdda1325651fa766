// What a sanitizer must find, so that its silence means something. check.py calls one of these.
#include <cstdlib>

extern "C" int heap(int n) {
    int* volatile numbers = static_cast<int*>(std::malloc(n * sizeof(int)));
    const int past = numbers[n];
    std::free(numbers);
    return past;
}

extern "C" int shift(int n) { return 1 << (n + 40); }

extern "C" int race(int n) {
    int sum = 0;
#pragma omp parallel for num_threads(4) schedule(static, 1)
    for (int i = 0; i < 1000; ++i) sum += n;
    return sum;
}

// No fault: OpenMP orders it. Without Archer it would be taken for a race.
extern "C" int ordered(int n) {
    int sum = 0;
#pragma omp parallel num_threads(4)
    {
#pragma omp critical
        sum += n;
#pragma omp barrier
#pragma omp single
        sum *= 2;
    }
    return sum;
}
