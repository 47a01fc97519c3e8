// 16 bytes of numbers of a dtype: NUMBER is Half, BFloat or Wide.
#pragma once

#include <device.cuh>

#include <arguments.h>

struct Wide {};  // float32

template <typename KIND>
struct Vector {
    static constexpr int COUNT = 8, BYTES = 2;
    DEVICE static void read(const Words& words, float (&numbers)[8]) {
        const uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const Pair pair = KIND::unpack(pairs[i]);
            numbers[2 * i] = pair.x;
            numbers[2 * i + 1] = pair.y;
        }
    }
    DEVICE static Words words(const float (&numbers)[8]) {
        return {KIND::pack(numbers[0], numbers[1]), KIND::pack(numbers[2], numbers[3]),
                KIND::pack(numbers[4], numbers[5]), KIND::pack(numbers[6], numbers[7])};
    }
    DEVICE static Pair pair(const void* row, int64_t at) {
        return KIND::unpack(reinterpret_cast<const uint32_t*>(row)[at / 2]);
    }
    DEVICE static void put(void* row, int64_t at, Pair pair) {
        reinterpret_cast<uint32_t*>(row)[at / 2] = KIND::pack(pair.x, pair.y);
    }
};

template <>
struct Vector<Wide> {
    static constexpr int COUNT = 4, BYTES = 4;
    DEVICE static void read(const Words& words, float (&numbers)[4]) {
        numbers[0] = float_of(words.x);
        numbers[1] = float_of(words.y);
        numbers[2] = float_of(words.z);
        numbers[3] = float_of(words.w);
    }
    DEVICE static Words words(const float (&numbers)[4]) {
        return {bits_of(numbers[0]), bits_of(numbers[1]), bits_of(numbers[2]), bits_of(numbers[3])};
    }
    DEVICE static Pair pair(const void* row, int64_t at) { return reinterpret_cast<const Pair*>(row)[at / 2]; }
    DEVICE static void put(void* row, int64_t at, Pair pair) { reinterpret_cast<Pair*>(row)[at / 2] = pair; }
};

DEVICE const uint8_t* bytes_at(const void* numbers, int64_t at, int bytes) {
    return reinterpret_cast<const uint8_t*>(numbers) + at * bytes;
}
