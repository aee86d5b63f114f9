#include "textflag.h"

// FOLD moves the 16-byte lanes of acc over a distance and adds next to them:
// K holds, per lane, x^(d+63) and x^(d-1) for a distance of d bits (see
// foldTable). Clobbers T0 and T1.
#define FOLD(K, acc, next, T0, T1) \
	VPCLMULQDQ $0x00, K, acc, T0; \
	VPCLMULQDQ $0x11, K, acc, T1; \
	VPXOR      next, T0, T0;      \
	VPXOR      T0, T1, acc

// func foldAVX2(c uint32, p []byte) (lo, hi uint64)
//
// Four accumulators of two lanes each hide the latency of the multiplications.
// They walk over p 128 bytes at a time, are folded into one, which walks over
// what is left 32 bytes at a time, then its two lanes into one. CX is what is
// left less what the next step takes.
TEXT ·foldAVX2(SB), NOSPLIT, $0-48
	MOVL c+0(FP), AX
	MOVQ p_base+8(FP), SI
	MOVQ p_len+16(FP), CX

	VMOVD          AX, X5
	VPXOR          (SI), Y5, Y0
	VBROADCASTI128 ·foldTable+16(SB), Y4
	SUBQ           $128, CX
	JLT            short

	VMOVDQU 32(SI), Y1
	VMOVDQU 64(SI), Y2
	VMOVDQU 96(SI), Y3
	ADDQ    $128, SI
	SUBQ    $128, CX
	JLT     join

	VBROADCASTI128 ·foldTable+0(SB), Y13

wide:
	FOLD(Y13, Y0, (SI), Y5, Y6)
	FOLD(Y13, Y1, 32(SI), Y7, Y8)
	FOLD(Y13, Y2, 64(SI), Y9, Y10)
	FOLD(Y13, Y3, 96(SI), Y11, Y12)
	ADDQ $128, SI
	SUBQ $128, CX
	JGE  wide

join:
	FOLD(Y4, Y0, Y1, Y5, Y6)
	FOLD(Y4, Y0, Y2, Y5, Y6)
	FOLD(Y4, Y0, Y3, Y5, Y6)
	ADDQ $96, CX
	JGE  pair
	JMP  lanes

short:
	ADDQ $32, SI
	ADDQ $64, CX
	JLT  lanes

pair:
	FOLD(Y4, Y0, (SI), Y5, Y6)
	ADDQ $32, SI
	SUBQ $32, CX
	JGE  pair

lanes:
	VMOVDQU      ·foldTable+32(SB), X4
	VEXTRACTI128 $1, Y0, X1
	FOLD(X4, X0, X1, X5, X6)
	ADDQ         $16, CX
	JLT          done
	FOLD(X4, X0, (SI), X5, X6)

done:
	VMOVDQU X0, lo+32(FP)
	VZEROUPPER
	RET

// func cpuid(leaf, subleaf uint32) (eax, ebx, ecx, edx uint32)
TEXT ·cpuid(SB), NOSPLIT, $0-24
	MOVL leaf+0(FP), AX
	MOVL subleaf+4(FP), CX
	CPUID
	MOVL AX, eax+8(FP)
	MOVL BX, ebx+12(FP)
	MOVL CX, ecx+16(FP)
	MOVL DX, edx+20(FP)
	RET

// func xgetbv() uint32
TEXT ·xgetbv(SB), NOSPLIT, $0-4
	XORL CX, CX
	XGETBV
	MOVL AX, ret+0(FP)
	RET
