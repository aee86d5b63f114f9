/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * PCG-DXSM with 128 bits of state: the generator of Go's math/rand/v2.PCG, so that the
 * same seed gives the same numbers as in Go (O'Neill, PCG, HMC-CS-2014-0905; multiplier:
 * Steele and Vigna, arXiv:2001.05304).
 */
#ifndef PCG_H
#define PCG_H

#include <linux/types.h>

struct pcg {
	__u64 hi, lo;
};

/* Returns the high 64 bits of a product. */
static __always_inline __u64 pcg_mul_high(__u64 a, __u64 b)
{
	__u64 a0 = (__u32)a, a1 = a >> 32, b0 = (__u32)b, b1 = b >> 32;
	__u64 mid = a1 * b0 + (a0 * b0 >> 32);
	__u64 low = a0 * b1 + (__u32)mid;

	return a1 * b1 + (mid >> 32) + (low >> 32);
}

/* Returns 64 random bits. Calls no helper, so the caller may hold a spin lock. */
static __always_inline __u64 pcg_next(struct pcg *p)
{
	const __u64 mul_hi = 2549297995355413924ULL, mul_lo = 4865540595714422341ULL;
	const __u64 inc_hi = 6364136223846793005ULL, inc_lo = 1442695040888963407ULL;
	__u64 hi = pcg_mul_high(p->lo, mul_lo) + p->hi * mul_lo + p->lo * mul_hi;
	__u64 lo = p->lo * mul_lo + inc_lo;

	hi += inc_hi + (lo < inc_lo);
	p->hi = hi;
	p->lo = lo;
	hi ^= hi >> 32;
	hi *= 0xda942042e4dd58b5ULL;
	hi ^= hi >> 48;
	return hi * (lo | 1);
}

#endif
