"""CUDA C++ source text that the built-in kernels share. They are compiled without headers.

All kernels need NUMBERS; the other parts build on it. Macros come from the launch
(`compile_and_launch_cuda.CudaKernel`): T and other dtypes, VEC elements per load, THREADS per block. For rows there are
LANES threads per row with PACKS loads each.
"""

from __future__ import annotations

NUMBERS = r"""
// ---- Numbers. All arithmetic is in float32: 16-bit numbers are converted when they are read and written.

struct float16 { unsigned short bits; };
struct bfloat16 { unsigned short bits; };

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(float16 x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); return y; }
__device__ inline float widen(bfloat16 x) { return __uint_as_float((unsigned int)x.bits << 16); }

__device__ inline void narrow(float x, float& y) { y = x; }
__device__ inline void narrow(float x, float16& y) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }
__device__ inline void narrow(float x, bfloat16& y) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }

#define INFINITE __int_as_float(0x7f800000)
#define NOT_A_NUMBER __int_as_float(0x7fc00000)

// Elements that lie side by side and travel in one load or store, of up to 16 bytes.
template <typename E, int N>
struct alignas(sizeof(E) * N < 16 ? sizeof(E) * N : 16) Pack { E at[N]; };

// 16-bit results do not show the last bits of float32: there the device's fast approximations are used.
__device__ inline float fast_exp(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
    return y;
}
__device__ inline float fast_inverse(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

template <typename E> __device__ inline float exponential(float x) { return sizeof(E) == 4 ? expf(x) : fast_exp(x); }
template <typename E> __device__ inline float quotient(float x, float y) {
    return sizeof(E) == 4 ? x / y : x * fast_inverse(y);
}

// sum / count, as exact as a division but without its slow path for tiny divisors, which costs registers.
__device__ inline float mean_of(float sum, float count) {
    const float inverse = fast_inverse(count), estimate = sum * inverse, rest = fmaf(-estimate, count, sum);
    return rest == rest ? fmaf(rest, inverse, estimate) : estimate;  // NaN: the sum is infinite
}
"""

ELEMENTWISE = (
    NUMBERS
    + r"""
// ---- Elementwise kernels. A tile is LOADS * THREADS packs side by side. A thread takes every THREADS-th of them, and
// has all its loads in flight before it uses the first.

constexpr long long TILE = (long long)LOADS * THREADS * VEC;

__device__ inline long long place_of(long long tile, int load) {
    return tile * TILE + ((long long)load * THREADS + threadIdx.x) * VEC;
}

// Zeros beyond the last element.
template <typename E>
__device__ inline void read(Pack<E, VEC> (&to)[LOADS], const E* from, long long tile, long long count) {
    if ((tile + 1) * TILE <= count) {
        #pragma unroll
        for (int k = 0; k < LOADS; ++k) to[k] = *reinterpret_cast<const Pack<E, VEC>*>(from + place_of(tile, k));
        return;
    }
    #pragma unroll
    for (int k = 0; k < LOADS; ++k) {
        #pragma unroll
        for (int i = 0; i < VEC; ++i) {
            const long long place = place_of(tile, k) + i;
            to[k].at[i] = place < count ? from[place] : E{};
        }
    }
}

template <typename E>
__device__ inline void write(E* to, const Pack<E, VEC> (&from)[LOADS], long long tile, long long count) {
    if ((tile + 1) * TILE <= count) {
        #pragma unroll
        for (int k = 0; k < LOADS; ++k) *reinterpret_cast<Pack<E, VEC>*>(to + place_of(tile, k)) = from[k];
        return;
    }
    #pragma unroll
    for (int k = 0; k < LOADS; ++k) {
        #pragma unroll
        for (int i = 0; i < VEC; ++i) {
            const long long place = place_of(tile, k) + i;
            if (place < count) to[place] = from[k].at[i];
        }
    }
}
"""
)

SUMS = r"""
// ---- Sums whose order of additions is fixed, so that equal inputs give equal results.

// Over WIDTH neighbouring threads of a warp (a power of two). Every one of them gets the sum.
template <int WIDTH>
__device__ inline float sum_in_warp(float x) {
    #pragma unroll
    for (int distance = WIDTH / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffff, x, distance);
    return x;
}

// Over the WIDTH threads of a block (whole warps). Every thread gets the sum. All threads of the block must call it.
template <int WIDTH>
__device__ inline float sum_in_block(float x) {
    __shared__ float of_warps[32];
    x = sum_in_warp<32>(x);
    __syncthreads();  // until the sums of an earlier call have been read
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
    __syncthreads();
    return sum_in_warp<32>(threadIdx.x % 32 < WIDTH / 32 ? of_warps[threadIdx.x % 32] : 0.0f);
}

// Over `count` packs of N floats in memory, by the WIDTH threads of one block: the second of two kernels that add up a
// tensor, of which the first leaves one pack per block. Four loads of a thread are in flight at a time.
template <int WIDTH, int N>
__device__ inline Pack<float, N> sum_of_packs(const Pack<float, N>* packs, long long count) {
    Pack<float, N> total{};
    for (long long first = threadIdx.x; first < count; first += 4 * WIDTH) {
        Pack<float, N> loaded[4];
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            const long long place = first + k * WIDTH;
            loaded[k] = place < count ? packs[place] : Pack<float, N>{};
        }
        #pragma unroll
        for (int i = 0; i < N; ++i) {
            total.at[i] += (loaded[0].at[i] + loaded[1].at[i]) + (loaded[2].at[i] + loaded[3].at[i]);
        }
    }
    #pragma unroll
    for (int i = 0; i < N; ++i) total.at[i] = sum_in_block<WIDTH>(total.at[i]);
    return total;
}
"""

ROWS = (
    NUMBERS
    + SUMS
    + r"""
// ---- Rows. LANES neighbouring threads hold a row: each PACKS packs of it, every LANES-th. A row has whole packs.

constexpr int ROWS_OF_BLOCK = THREADS / LANES;

__device__ inline int lane() { return threadIdx.x % LANES; }
__device__ inline int column_of(int pack) { return (pack * LANES + lane()) * VEC; }  // few enough for an int

// Over the threads of a row; each of them gets the sum.
__device__ inline float sum_of_row(float x) {
    if constexpr (LANES <= 32) return sum_in_warp<LANES>(x);
    else return sum_in_block<LANES>(x);
}

// Zeros beyond the last column.
template <typename E>
__device__ inline void read_row(Pack<E, VEC> (&to)[PACKS], const E* from, int columns) {
    #pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        to[p] = Pack<E, VEC>{};
        if (column_of(p) < columns) to[p] = *reinterpret_cast<const Pack<E, VEC>*>(from + column_of(p));
    }
}

// One pack of a weight or bias; `otherwise` where there is none, and beyond the last column.
template <typename E>
__device__ inline void read_parameter(float (&to)[VEC], const E* from, int pack, int columns, float otherwise) {
    if (from != nullptr && column_of(pack) < columns) {
        const Pack<E, VEC> found = *reinterpret_cast<const Pack<E, VEC>*>(from + column_of(pack));
        #pragma unroll
        for (int i = 0; i < VEC; ++i) to[i] = widen(found.at[i]);
    } else {
        #pragma unroll
        for (int i = 0; i < VEC; ++i) to[i] = otherwise;
    }
}
"""
)

MOMENTS = r"""
// ---- Mean and variance of values that are not all at hand: of parts, then of parts together (Chan et al.).

struct Moments {
    float count, mean, squares;  // squares: sum of squared differences from the mean

    __device__ inline void add(const Moments& other) {
        const float together = count + other.count;
        if (together == 0.0f) return;
        const float difference = other.mean - mean, share = other.count / together;
        mean += difference * share;
        squares += other.squares + difference * difference * count * share;
        count = together;
    }
};

// Of all threads of a block of THREADS. Every thread gets them.
__device__ inline Moments moments_of_block(Moments mine) {
    __shared__ Moments of_warps[32];
    for (int distance = 16; distance > 0; distance /= 2) {
        mine.add({__shfl_xor_sync(0xffffffff, mine.count, distance), __shfl_xor_sync(0xffffffff, mine.mean, distance),
                  __shfl_xor_sync(0xffffffff, mine.squares, distance)});
    }
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
    __syncthreads();
    Moments all = of_warps[0];
    for (int warp = 1; warp < THREADS / 32; ++warp) all.add(of_warps[warp]);
    return all;
}

// Of a row that is read pack by pack, by all threads of the block.
template <typename E>
__device__ inline Moments moments_of_row(const E* row, long long columns) {
    Moments all{};
    #pragma unroll 4
    for (long long column = threadIdx.x * VEC; column < columns; column += THREADS * VEC) {
        const Pack<E, VEC> pack = *reinterpret_cast<const Pack<E, VEC>*>(row + column);
        Moments of_pack{VEC, 0.0f, 0.0f};
        #pragma unroll
        for (int i = 0; i < VEC; ++i) of_pack.mean += widen(pack.at[i]);
        of_pack.mean /= VEC;
        #pragma unroll
        for (int i = 0; i < VEC; ++i) {
            const float difference = widen(pack.at[i]) - of_pack.mean;
            of_pack.squares += difference * difference;
        }
        all.add(of_pack);
    }
    return moments_of_block(all);
}
"""

GELU = r"""
// ---- GELU of a float, for a result of type E.

#define HALF_SQUARE_ROOT 0.7071067811865476f  // sqrt(1/2)
#define TANH_FACTOR 0.7978845608028654f       // sqrt(2/pi)
#define TANH_CUBIC 0.044715f
#define DENSITY_AT_0 0.3989422804014327f      // 1/sqrt(2 pi)

// Share of a normal distribution below x. `bell` is exp(-x*x/2).
template <typename E> __device__ inline float cumulative(float x, float bell) {
    if constexpr (sizeof(E) == 4) return 0.5f * (1.0f + erff(x * HALF_SQUARE_ROOT));
    // The tail is bell times a polynomial in t, fitted for a relative error of 4e-6: invisible in 16 bits, and half the
    // work of erff.
    const float t = fast_inverse(1.0f + 0.30759145f * fabsf(x));
    float tail = 0.19065674f - 0.07543260f * t;
    tail = 0.00641958f + t * tail;
    tail = 0.13672678f + t * tail;
    tail = 0.11866621f + t * tail;
    tail = (0.12296286f + t * tail) * t * bell;
    return x < 0.0f ? tail : 1.0f - tail;
}

// 0.5 * (1 + tanh(u)) is sigmoid(2 u), which does not cancel for negative u.
template <typename E> __device__ inline float tanh_share(float x) {
    const float u = TANH_FACTOR * (x + TANH_CUBIC * x * x * x);
    return quotient<E>(1.0f, 1.0f + exponential<E>(-2.0f * u));
}

template <typename E> __device__ inline float bell_of(float x) { return exponential<E>(-0.5f * x * x); }

template <typename E> __device__ inline float gelu_of(float x) {
    if constexpr (TANH) return x * tanh_share<E>(x);
    else return x * cumulative<E>(x, sizeof(E) == 4 ? 0.0f : bell_of<E>(x));
}

template <typename E> __device__ inline float gelu_slope(float x) {
    if constexpr (TANH) {
        const float share = tanh_share<E>(x);
        const float slope = TANH_FACTOR * (1.0f + 3.0f * TANH_CUBIC * x * x);
        return share + 2.0f * x * share * (1.0f - share) * slope;
    } else {
        const float bell = bell_of<E>(x);
        return cumulative<E>(x, bell) + x * DENSITY_AT_0 * bell;
    }
}
"""

COLUMN_TOTALS = r"""
// ---- First pass of sums over rows: those of the rows of one block.

// The sums of one column over the rows of the block, from all threads that hold it; the first warp writes them.
__device__ inline void write_sums(float* to, float (&sums)[PACKS][VEC], int columns) {
    __shared__ float of_warps[LANES <= 32 ? THREADS / 32 : 1][LANES <= 32 ? LANES * VEC : 1];
    #pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        if constexpr (LANES <= 32) {
            __syncthreads();  // until the sums of an earlier pack have been read
            #pragma unroll
            for (int i = 0; i < VEC; ++i) {
                #pragma unroll
                for (int distance = LANES; distance < 32; distance *= 2) {
                    sums[p][i] += __shfl_xor_sync(0xffffffff, sums[p][i], distance);
                }
                if (threadIdx.x % 32 < LANES) of_warps[threadIdx.x / 32][lane() * VEC + i] = sums[p][i];
            }
            __syncthreads();
            if (threadIdx.x >= LANES) continue;
            #pragma unroll
            for (int i = 0; i < VEC; ++i) {
                sums[p][i] = 0.0f;
                for (int warp = 0; warp < THREADS / 32; ++warp) sums[p][i] += of_warps[warp][lane() * VEC + i];
            }
        }
        if (column_of(p) >= columns) continue;
        #pragma unroll
        for (int i = 0; i < VEC; ++i) to[(long long)blockIdx.x * columns + column_of(p) + i] = sums[p][i];
    }
}
"""

ADD_COLUMNS = r"""
// ---- Second pass of sums over rows: the sums of all blocks, added column by column in a fixed order.

extern "C" __global__ void __launch_bounds__(1024) add_columns(
    const float* dw_sums, const float* db_sums, W* dw, W* db, long long blocks, long long columns)
{
    __shared__ float dw_parts[32][33], db_parts[32][33];
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
    const long long column = (long long)blockIdx.x * 32 + x;
    float dw_sum = 0.0f, db_sum = 0.0f;
    if (column < columns) {
        #pragma unroll 4
        for (long long block = y; block < blocks; block += 32) {
            dw_sum += dw_sums[block * columns + column];
            db_sum += db_sums[block * columns + column];
        }
    }
    dw_parts[y][x] = dw_sum;
    db_parts[y][x] = db_sum;
    __syncthreads();
    dw_sum = sum_in_warp<32>(dw_parts[x][y]);  // warp y adds the parts of column y of this block's
    db_sum = sum_in_warp<32>(db_parts[x][y]);
    const long long mine = (long long)blockIdx.x * 32 + y;
    if (x == 0 && mine < columns) {
        narrow(dw_sum, dw[mine]);
        narrow(db_sum, db[mine]);
    }
}
"""
