// cooperative_groups for the CPU device: thread_block, tiles of up to a warp, and reductions over them.
#pragma once
namespace cooperative_groups {
class thread_block {
 public:
  static void sync(int line = __builtin_LINE()) { __syncthreads(line); }
  static unsigned thread_rank() { return tfi_cpu::linear_thread(); }
  static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned num_threads() { return size(); }
  static dim3 group_index() { return dim3(blockIdx); }
  static dim3 thread_index() { return dim3(threadIdx); }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
};
TFI_INLINE thread_block this_thread_block() { return {}; }

template <unsigned Size, class Parent = thread_block> class thread_block_tile {
  static_assert(Size <= 32 && (Size & (Size - 1)) == 0, "a tile has 1, 2, 4, 8, 16 or 32 threads");

 public:
  static void sync(int line = __builtin_LINE()) { __syncwarp(mask(), line); }
  static unsigned thread_rank() { return tfi_cpu::lane() % Size; }
  static constexpr unsigned size() { return Size; }
  static constexpr unsigned num_threads() { return Size; }
  static unsigned meta_group_rank() { return tfi_cpu::linear_thread() / Size; }
  static unsigned meta_group_size() { return (thread_block::size() + Size - 1) / Size; }

  template <class T> static T shfl(T value, int source, int line = __builtin_LINE()) {
    return __shfl_sync(mask(), value, source, (int)Size, line);
  }
  template <class T> static T shfl_up(T value, unsigned delta, int line = __builtin_LINE()) {
    return __shfl_up_sync(mask(), value, delta, (int)Size, line);
  }
  template <class T> static T shfl_down(T value, unsigned delta, int line = __builtin_LINE()) {
    return __shfl_down_sync(mask(), value, delta, (int)Size, line);
  }
  template <class T> static T shfl_xor(T value, unsigned lanes, int line = __builtin_LINE()) {
    return __shfl_xor_sync(mask(), value, (int)lanes, (int)Size, line);
  }
  static unsigned ballot(int predicate, int line = __builtin_LINE()) {
    return own_lanes(__ballot_sync(mask(), predicate, line));
  }
  static int any(int predicate, int line = __builtin_LINE()) { return ballot(predicate, line) != 0; }
  static int all(int predicate, int line = __builtin_LINE()) { return ballot(!predicate, line) == 0; }
  template <class T> static unsigned match_any(T value, int line = __builtin_LINE()) {
    return own_lanes(__match_any_sync(mask(), value, line));
  }
  template <class T, class Op> static T reduce(T value, Op op, int line) {
    return tfi_cpu::reduce(mask(), value, op, line);
  }

 private:
  static unsigned first_lane() { return tfi_cpu::lane() / Size * Size; }
  static unsigned all_lanes() { return Size == 32 ? ~0u : (1u << Size % 32) - 1; }
  static unsigned mask() { return all_lanes() << first_lane(); }
  static unsigned own_lanes(unsigned lanes) { return lanes >> first_lane() & all_lanes(); }
};
template <unsigned Size, class Parent> TFI_INLINE thread_block_tile<Size, Parent> tiled_partition(const Parent&) {
  return {};
}

template <class T> struct plus { T operator()(T a, T b) const { return a + b; } };
template <class T> struct less { T operator()(T a, T b) const { return b < a ? b : a; } };
template <class T> struct greater { T operator()(T a, T b) const { return a < b ? b : a; } };
template <class T> struct bit_and { T operator()(T a, T b) const { return a & b; } };
template <class T> struct bit_or { T operator()(T a, T b) const { return a | b; } };
template <class T> struct bit_xor { T operator()(T a, T b) const { return a ^ b; } };
template <class Group, class T, class Op>
TFI_INLINE T reduce(const Group& group, T value, Op op, int line = __builtin_LINE()) {
  return group.reduce(value, op, line);
}
template <class Group> TFI_INLINE void sync(const Group& group, int line = __builtin_LINE()) { group.sync(line); }
}  // namespace cooperative_groups
