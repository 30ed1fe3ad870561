// Runs a kernel's blocks: one trampoline per kernel, and the table by which the module is loaded.
#pragma once
namespace tfi_cpu {
template <size_t... I> struct indices {};
template <size_t N, size_t... I> struct make_indices : make_indices<N - 1, N - 1, I...> {};
template <size_t... I> struct make_indices<0, I...> { typedef indices<I...> type; };

// The launch's arguments, copied once per block loop: their addresses are the runtime's, and may alias nothing.
template <size_t I, class T> struct argument { T value; };
template <class S, class... A> struct arguments;
template <size_t... I, class... A> struct arguments<indices<I...>, A...> : argument<I, A>... {};
template <size_t I, class T> TFI_INLINE TFI_UNCHECKED T& get(argument<I, T>& a) { return a.value; }

#ifdef TFI_NO_WAITING
// No thread of this source can wait for another: plain loops, which the compiler may turn into vector code.
#if defined(TFI_CHECK)
#define TFI_INDEPENDENT
#elif defined(__clang__)
#define TFI_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define TFI_INDEPENDENT _Pragma("GCC ivdep")
#endif
template <class Call> TFI_INLINE TFI_UNCHECKED void each_thread(Call call) {
  const unsigned width = blockDim.x, height = blockDim.y, depth = blockDim.z;
  for (unsigned z = 0; z < depth; ++z)
    for (unsigned y = 0; y < height; ++y) {
      threadIdx.z = z;
      threadIdx.y = y;
      TFI_INDEPENDENT
      for (unsigned x = 0; x < width; ++x) {
        threadIdx.x = x;
        call();
      }
    }
}
#else
TFI_INLINE TFI_UNCHECKED void take_row() {
  threadIdx.y = next.y;
  threadIdx.z = next.z;
}
TFI_INLINE TFI_UNCHECKED bool next_row() {
  if (rows_left == 0) return false;
  --rows_left;
  next.x = 0;
  if (++next.y == blockDim.y) {
    next.y = 0;
    ++next.z;
  }
  return true;
}
// The loop's state is thread-local: when a thread waits, a fresh fiber comes here and goes on with the next one.
template <class Call> TFI_INLINE TFI_UNCHECKED void each_thread(Call call) {
  const unsigned width = blockDim.x;
  do {
    take_row();
    for (unsigned x; (x = next.x) < width;) {
      next.x = x + 1;
      threadIdx.x = x;
      call();
      if (__builtin_expect(is_cooperative, false)) {
        runtime->thread_done(worker, linear_thread());
        take_row();
      }
    }
  } while (next_row());
}
#endif

template <auto F, class... A, size_t... I> TFI_INLINE TFI_UNCHECKED void run(void (*)(A...), indices<I...>) {
  arguments<indices<I...>, typename no_cv<A>::type...> values{{*(typename no_cv<A>::type*)args[I]}...};
  each_thread([&]() TFI_UNCHECKED __attribute__((always_inline)) { F(get<I>(values)...); });
}
template <auto F, class... A> TFI_INLINE TFI_UNCHECKED void run(void (*f)(A...)) {
  run<F>(f, typename make_indices<sizeof...(A)>::type{});
}
template <auto F> TFI_UNCHECKED static void threads() { run<F>(F); }

template <class W> struct word_table;
template <tfi_signature::word... W> struct word_table<tfi_signature::words<W...>> {
  static constexpr tfi_signature::word values[] = {W..., 0};
  static constexpr tfi_u64 count = sizeof...(W);
};
template <auto F> using words_of = word_table<typename tfi_signature::of<decltype(F)>::type>;
#ifdef TFI_CHECK
// A structure, or a pointer to structures or pointers, may lead to memory that the launch does not list.
template <auto F> constexpr bool has_unknown_pointers() {
  for (tfi_u64 i = 0; i < words_of<F>::count; i += 2) {
    tfi_u64 head = words_of<F>::values[i], kind = head >> 40 & 15, element = words_of<F>::values[i + 1] & 255;
    bool is_structure = kind == 2 && (head & 0xffffffffu) >= sizeof(void*);
    if (is_structure || (kind == 1 && (element == 253 || element == 255))) return true;
  }
  return false;
}
#endif

TFI_INLINE TFI_UNCHECKED void set_block(tfi_u64 block) {
  const tfi_u64 width = gridDim.x, layer = width * gridDim.y;
  blockIdx = uint3{(unsigned)(block % layer % width), (unsigned)(block % layer / width), (unsigned)(block / layer)};
}
TFI_INLINE TFI_UNCHECKED void next_block() {
  if (++blockIdx.x < gridDim.x) return;
  blockIdx.x = 0;
  if (++blockIdx.y < gridDim.y) return;
  blockIdx.y = 0;
  ++blockIdx.z;
}
template <auto F>
TFI_UNCHECKED static void blocks(tfi_worker* w, const tfi_cpu_launch_t* l, tfi_u64 first, tfi_u64 last) {
  worker = w;
  args = l->args;
  run_threads = &threads<F>;
#ifdef TFI_CHECK
  unknown_pointers = has_unknown_pointers<F>() ? TFI_MAY_BE_ELSEWHERE : 0;
#endif
  blockDim = dim3(l->block[0], l->block[1], l->block[2]);
  gridDim = dim3(l->grid[0], l->grid[1], l->grid[2]);
  set_block(first);
  for (tfi_u64 block = first; block < last; ++block, next_block()) {
    runtime->begin_block(w, block);
    is_cooperative = false;
    next = uint3{0, 0, 0};
    rows_left = blockDim.y * blockDim.z - 1;
    run<F>(F);
    if (__builtin_expect(is_cooperative, false)) runtime->finish_block(w);
  }
}

// `words` end where `nwords` says; a kernel without parameters has none.
struct kernel_entry {
  const char* name;
  tfi_cpu_blocks_fn blocks;
  const tfi_signature::word* words;
  tfi_u64 nwords;
  tfi_u64 max_threads;
};
template <auto F> constexpr kernel_entry make_entry(const char* name, tfi_u64 max_threads) {
  return {name, &blocks<F>, words_of<F>::values, words_of<F>::count, max_threads};
}
}  // namespace tfi_cpu

TFI_EXPORT void tfi_module_init(const tfi_runtime* table) { tfi_cpu::runtime = table; }
// The unary plus takes name expressions in every form: `k<float>`, `ns::k`, `(void (*)(int*))k`.
#define TFI_KERNEL(NAME, MAX_THREADS, ...) tfi_cpu::make_entry<(+__VA_ARGS__)>(NAME, MAX_THREADS),
#define TFI_MODULE(...) \
  TFI_EXPORT const tfi_cpu::kernel_entry tfi_kernels[] = {__VA_ARGS__ {nullptr, nullptr, nullptr, 0, 0}};
