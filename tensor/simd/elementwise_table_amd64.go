package simd

//go:generate sh -c "go run gen_elementwise.go s > elementwise_amd64.s; go run gen_elementwise.go go > e.tmp; mv e.tmp elementwise_amd64.go"
//go:generate sh -c "go run gen_elementwise.go s512 > elementwise512_amd64.s; go run gen_elementwise.go go512 > e.tmp; mv e.tmp elementwise512_amd64.go"

// elementwiseKernels are the loops of one level; nil where there is none.

var elementwiseAVX2 = elementwiseKernels{
	binary: [opCount]struct{ vv, vs, sv binaryFunc }{
		Add:          {addVVAVX2, addVSAVX2, addSVAVX2},
		Sub:          {subVVAVX2, subVSAVX2, subSVAVX2},
		Mul:          {mulVVAVX2, mulVSAVX2, mulSVAVX2},
		Div:          {divVVAVX2, divVSAVX2, divSVAVX2},
		Max:          {maxVVAVX2, maxVSAVX2, maxSVAVX2},
		Min:          {minVVAVX2, minVSAVX2, minSVAVX2},
		Equal:        {eqVVAVX2, eqVSAVX2, nil},
		NotEqual:     {neVVAVX2, neVSAVX2, nil},
		Less:         {ltVVAVX2, ltVSAVX2, nil},
		LessEqual:    {leVVAVX2, leVSAVX2, nil},
		Greater:      {gtVVAVX2, gtVSAVX2, nil},
		GreaterEqual: {geVVAVX2, geVSAVX2, nil},
		// Operands are 0 or 1.
		And: {mulVVAVX2, mulVSAVX2, mulSVAVX2},
		Or:  {maxVVAVX2, maxVSAVX2, maxSVAVX2},
		Xor: {neVVAVX2, neVSAVX2, nil},
	},
	unary: [opCount]unaryFunc{
		Neg: negAVX2, Abs: absAVX2, Sqrt: sqrtAVX2, Rsqrt: rsqrtAVX2, Exp: expAVX2, Tanh: tanhAVX2, Erf: erfAVX2,
		Logistic: logisticAVX2, Gelu: geluAVX2,
	},
	where: whereAVX2, sum: sumAVX2, max: reduceMaxAVX2, min: reduceMinAVX2, bools: boolsAVX2,
}

var elementwiseZ = elementwiseKernels{
	binary: [opCount]struct{ vv, vs, sv binaryFunc }{
		Add:          {addVVZ, addVSZ, addSVZ},
		Sub:          {subVVZ, subVSZ, subSVZ},
		Mul:          {mulVVZ, mulVSZ, mulSVZ},
		Div:          {divVVZ, divVSZ, divSVZ},
		Max:          {maxVVZ, maxVSZ, maxSVZ},
		Min:          {minVVZ, minVSZ, minSVZ},
		Equal:        {eqVVZ, eqVSZ, nil},
		NotEqual:     {neVVZ, neVSZ, nil},
		Less:         {ltVVZ, ltVSZ, nil},
		LessEqual:    {leVVZ, leVSZ, nil},
		Greater:      {gtVVZ, gtVSZ, nil},
		GreaterEqual: {geVVZ, geVSZ, nil},
		// Operands are 0 or 1.
		And: {mulVVZ, mulVSZ, mulSVZ},
		Or:  {maxVVZ, maxVSZ, maxSVZ},
		Xor: {neVVZ, neVSZ, nil},
	},
	unary: [opCount]unaryFunc{
		Neg: negZ, Abs: absZ, Sqrt: sqrtZ, Rsqrt: rsqrtZ, Exp: expZ, Tanh: tanhZ, Erf: erfZ,
		Logistic: logisticZ, Gelu: geluZ,
	},
	where: whereZ, sum: sumZ, max: reduceMaxZ, min: reduceMinZ, bools: boolsAVX2,
}

func selectElementwise() {
	switch {
	case Level >= AVX512:
		fast = &elementwiseZ
	case Level >= AVX2:
		fast = &elementwiseAVX2
	default:
		fast = &elementwiseKernels{}
	}
}
