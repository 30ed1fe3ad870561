# Python numbers to the exact bytes of a kernel parameter.

cdef extern from * nogil:
    """
    #include <math.h>
    #include <string.h>
    #include <stdint.h>
    // Round to nearest even, as the hardware does; NaN stays quiet.
    static inline uint16_t tfi_bfloat16_bits(float value) {
      uint32_t bits;
      memcpy(&bits, &value, 4);
      if (value != value) return (uint16_t)((bits >> 16) | 0x40);
      return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    }
    static inline int tfi_became_infinite(double before, double after) { return isinf(after) && !isinf(before); }
    static inline double tfi_bfloat16_value(uint16_t half) {
      uint32_t bits = (uint32_t)half << 16;
      float value;
      memcpy(&value, &bits, 4);
      return value;
    }
    """
    uint16_t tfi_bfloat16_bits(float)
    double tfi_bfloat16_value(uint16_t)
    bint tfi_became_infinite(double, double)

cdef enum:
    CODE_INT = 0
    CODE_UINT = 1
    CODE_FLOAT = 2
    CODE_BFLOAT = 4
    CODE_COMPLEX = 5
    CODE_BOOL = 6
    CODE_POINTER = 253
    CODE_VOID = 254
    CODE_STRUCT = 255


cdef Refusal store_float(double value, uint32_t dtype, void* slot) except RAISED:
    cdef uint32_t code = dtype & 0xff, bits = (dtype >> 8) & 0xff
    cdef float single = <float>value
    cdef uint16_t half
    if code == CODE_FLOAT and bits == 32:
        (<float*>slot)[0] = single
        return SCALAR_RANGE if tfi_became_infinite(value, single) else OK
    if code == CODE_FLOAT and bits == 64:
        (<double*>slot)[0] = value
        return OK
    if code == CODE_BFLOAT and bits == 16:
        half = tfi_bfloat16_bits(single)
        (<uint16_t*>slot)[0] = half
        return SCALAR_RANGE if tfi_became_infinite(value, tfi_bfloat16_value(half)) else OK
    if code == CODE_FLOAT and bits == 16:
        try:
            PyFloat_Pack2(value, <char*>slot, 1)
        except OverflowError:
            return SCALAR_RANGE
        return OK
    return KIND


cdef Refusal store_signed(value, uint32_t bits, void* slot) except RAISED:
    cdef int overflow = 0
    cdef long long number = PyLong_AsLongLongAndOverflow(value, &overflow)
    cdef long long half = <long long>1 << (bits - 1) if bits < 64 else 0
    if overflow or (bits < 64 and (number < -half or number >= half)):
        return SCALAR_RANGE
    memcpy(slot, &number, bits >> 3)
    return OK


cdef Refusal store_unsigned(value, uint32_t bits, void* slot) except RAISED:
    cdef unsigned long long number
    try:
        number = PyLong_AsUnsignedLongLong(value)
    except OverflowError:
        return SCALAR_RANGE
    if bits < 64 and number >> bits:
        return SCALAR_RANGE
    memcpy(slot, &number, bits >> 3)
    return OK


cdef Refusal store_number(obj, uint32_t dtype, void* slot) except RAISED:
    """Convert a Python float, int or bool to `dtype`; a bool fits a bool only, and nothing is narrowed silently."""
    cdef uint32_t code = dtype & 0xff, bits = (dtype >> 8) & 0xff
    if PyFloat_CheckExact(obj):
        return store_float(PyFloat_AS_DOUBLE(obj), dtype, slot)
    if obj is True or obj is False:
        if code != CODE_BOOL:
            return KIND
        (<uint8_t*>slot)[0] = obj is True
        return OK
    if not PyLong_CheckExact(obj):
        return KIND
    if code == CODE_INT:
        return store_signed(obj, bits, slot)
    if code == CODE_UINT:
        return store_unsigned(obj, bits, slot)
    if code == CODE_FLOAT or code == CODE_BFLOAT:
        try:
            return store_float(<double>obj, dtype, slot)
        except OverflowError:
            return SCALAR_RANGE
    return KIND


def pack_number(value, code, bits):
    """Return the bytes of a Python number as the given type, or None where it does not fit."""
    cdef uint64_t slot = 0
    cdef Refusal refusal = store_number(value, <uint32_t>code | <uint32_t>bits << 8, &slot)
    if refusal == KIND:
        raise TypeError
    if refusal != OK:
        return None
    return (<char*>&slot)[:bits // 8]
