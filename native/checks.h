// Which checks are compiled in: all of them.  Only benchmarks/bench_checks.py defines TFI_WITHOUT, to see what each costs.
#ifndef TFI_CHECKS_H
#define TFI_CHECKS_H
#ifndef TFI_WITHOUT
#define TFI_WITHOUT 0
#endif
enum {
  CHECK_SESSION = !(TFI_WITHOUT & 1),    // open, this thread, this process, a context that lives
  CHECK_KERNEL = !(TFI_WITHOUT & 2),     // loaded here, open, argument count, geometry
  CHECK_STATE = !(TFI_WITHOUT & 4),      // gradients, lazy bits, wrappers
  CHECK_LAYOUT = !(TFI_WITHOUT & 8),     // extents, strides, null data
  CHECK_DEVICE = !(TFI_WITHOUT & 16),    // the memory is on the session's device
  CHECK_ELEMENT = !(TFI_WITHOUT & 32),   // dtype and alignment against the pointee
  CHECK_ACCESS = !(TFI_WITHOUT & 64),    // read-only memory is not written
  CHECK_STREAM = !(TFI_WITHOUT & 128),   // the producer's current stream is the captured one
  CHECK_OVERLAP = !(TFI_WITHOUT & 256),  // written spans against all others
  COUNT_WRITES = !(TFI_WITHOUT & 512)    // version counters of written tensors
};
#endif
