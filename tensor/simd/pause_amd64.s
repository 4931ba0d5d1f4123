#include "textflag.h"

// func Pause()
TEXT ·Pause(SB), NOSPLIT, $0-0
	MOVL $10, CX
again:
	PAUSE
	DECL CX
	JNZ again
	RET
