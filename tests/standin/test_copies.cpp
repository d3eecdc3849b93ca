// The copies that generated CUDA makes within a device's memory (runtime/cuda/kernels/copies.h):
// boxes taken out and put back, pieces and parts packed and unpacked, more of them than one launch
// takes, in units of every width. Each is compared with a copy made element by element.
#define TPGEN_CUDA
#include "../../runtime/cuda/kernels/copies.h"

#include "check.h"
#include "of_runtime.h"
#include "on_device.h"

#include <vector>

template <class T> static std::vector<T> numbers(size_t count)
{
  std::vector<T> x(count);
  for (size_t i = 0; i < count; i++) x[i] = (T)(i % 127);
  return x;
}

// Calls what(index in the whole) for each element of a box, row by row.
template <class F> static void each(const long *of, const long *first, const long *size, F what)
{
  for (long i = 0; i < size[0]; i++)
    for (long j = 0; j < size[1]; j++)
      for (long k = 0; k < size[2]; k++)
        what(((first[0] + i) * of[1] + first[1] + j) * of[2] + first[2] + k);
}

template <class T> static void test_box(const long *of, const long *first, const long *size)
{
  const size_t all = (size_t)(of[0] * of[1] * of[2]), some = (size_t)(size[0] * size[1] * size[2]);
  std::vector<T> x = numbers<T>(all), back(all, (T)99);
  on_device<T> array(x), box(std::vector<T>(some, (T)99)), again(back);
  slice_box(box.at, array.at, sizeof(T), 3, size, of, first);
  put_box(again.at, box.at, sizeof(T), 3, size, of, first);
  std::vector<T> got = box.read();
  size_t n = 0;
  each(of, first, size, [&](long i) {
    CHECK(got[n++] == x[(size_t)i]);
    back[(size_t)i] = x[(size_t)i];
  });
  CHECK(again.read() == back);
}

template <class T> static void test_boxes()
{
  static const long of[3] = {4, 6, 8};
  static const long box[][6] = {{0, 0, 0, 4, 6, 8}, {1, 0, 0, 2, 6, 8}, {0, 2, 0, 4, 2, 8},
                                {0, 0, 4, 4, 6, 4}, {1, 1, 1, 2, 3, 5}, {3, 5, 7, 1, 1, 1},
                                {0, 2, 2, 4, 4, 2}, {0, 1, 0, 1, 5, 8}};
  for (const auto &b : box) test_box<T>(of, b, b + 3);
}

// A 20 x 6 array in 40 pieces, two for each row.
template <class T> static void test_pieces()
{
  std::vector<piece> list;
  std::vector<T> x = numbers<T>(20 * 6), packed;
  for (long row = 0; row < 20; row++)
    for (long half = 0; half < 2; half++) {
      long begin = half ? row % 5 + 1 : 0, end = half ? 6 : row % 5 + 1;
      list.push_back({(long)packed.size(), {row, begin}, {1, end - begin}});
      for (long c = begin; c < end; c++) packed.push_back(x[(size_t)(row * 6 + c)]);
    }
  const pieces all = {2, {20, 6}, (int)list.size(), list.data()};
  on_device<T> array(x), flat(std::vector<T>(x.size(), (T)99)),
      back(std::vector<T>(x.size(), (T)99));
  pack_pieces(flat.at, array.at, sizeof(T), &all);
  unpack_pieces(back.at, flat.at, sizeof(T), &all);
  CHECK(flat.read() == packed);
  CHECK(back.read() == x);
  const pieces none = {0, {0}, 0, NULL};
  pack_pieces(flat.at, array.at, sizeof(T), &none);
  CHECK(flat.read() == packed);
}

// Rows of 21 parts, some of them empty.
static void test_parts()
{
  const long rows = 5;
  std::vector<long> part;
  long of = 0;
  for (long p = 0; p < 21; p++) {
    part.push_back(p % 4 * 2);
    of += part.back();
  }
  std::vector<char> x = numbers<char>((size_t)(rows * of)), packed;
  long begin = 0;
  for (long size : part) {
    for (long r = 0; r < rows; r++)
      for (long i = 0; i < size; i++) packed.push_back(x[(size_t)(r * of + begin + i)]);
    begin += size;
  }
  on_device<char> array(x), flat(std::vector<char>(x.size())), back(std::vector<char>(x.size()));
  pack_parts(flat.at, array.at, rows, 21, part.data());
  unpack_parts(back.at, flat.at, rows, 21, part.data());
  CHECK(flat.read() == packed);
  CHECK(back.read() == x);
}

static void test_fill()
{
  on_device<float> x(std::vector<float>(1000, 1.0f));
  fill(x.at, 999, -INFINITY);
  std::vector<float> got = x.read();
  for (size_t i = 0; i < 999; i++) CHECK(got[i] == -INFINITY);
  CHECK(got[999] == 1.0f);
}

int main()
{
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  test_boxes<char>();
  test_boxes<short>();
  test_boxes<float>();
  test_boxes<double>();
  test_pieces<char>();
  test_pieces<short>();
  test_pieces<float>();
  test_pieces<double>();
  test_parts();
  test_fill();
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  puts("copies: ok");
}
