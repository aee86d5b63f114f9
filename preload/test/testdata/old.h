/* Functions that old releases of glibc lack. The preload library exports them nevertheless, for programs
 * built with a newer glibc. */
#include <features.h>
#include <linux/close_range.h>
#include <malloc.h>

#if !__GLIBC_PREREQ(2, 33)
#define mallinfo2 mallinfo
#endif
#if !__GLIBC_PREREQ(2, 34)
extern int close_range(unsigned first, unsigned last, int flags) __attribute__((weak));
extern void closefrom(int low) __attribute__((weak));
#endif
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4 /* Linux 5.11 */
#endif
