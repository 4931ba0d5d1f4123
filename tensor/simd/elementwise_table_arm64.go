package simd

var elementwiseNEON = elementwiseKernels{
	binary: [opCount]struct{ vv, vs, sv binaryFunc }{
		Add: {addVVNEON, addVSNEON, addSVNEON}, Sub: {subVVNEON, subVSNEON, subSVNEON}, Mul: {mulVVNEON, mulVSNEON, mulSVNEON}, Div: {divVVNEON, divVSNEON, divSVNEON}, Max: {maxVVNEON, maxVSNEON, maxSVNEON}, Min: {minVVNEON, minVSNEON, minSVNEON},
		Equal: {eqVVNEON, eqVSNEON, nil}, NotEqual: {neVVNEON, neVSNEON, nil}, Less: {ltVVNEON, ltVSNEON, nil}, LessEqual: {leVVNEON, leVSNEON, nil}, Greater: {gtVVNEON, gtVSNEON, nil}, GreaterEqual: {geVVNEON, geVSNEON, nil},
		// Operands are 0 or 1.
		And: {mulVVNEON, mulVSNEON, mulSVNEON}, Or: {maxVVNEON, maxVSNEON, maxSVNEON}, Xor: {neVVNEON, neVSNEON, nil},
	},
	unary: [opCount]unaryFunc{
		Neg: negNEON, Abs: absNEON, Sqrt: sqrtNEON, Rsqrt: rsqrtNEON, Exp: expNEON, Tanh: tanhNEON, Erf: erfNEON,
		Logistic: logisticNEON, Gelu: geluNEON,
	},
	where: whereNEON, sum: sumNEON, max: reduceMaxNEON, min: reduceMinNEON,
}

func selectElementwise() {
	fast = &elementwiseKernels{}
	if Level >= NEON {
		fast = &elementwiseNEON
	}
}
