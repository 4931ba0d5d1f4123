package simd

//go:generate sh -c "go run gen_elementwise.go s > elementwise_amd64.s; go run gen_elementwise.go go > e.tmp; mv e.tmp elementwise_amd64.go"

var fastBinary = [opCount]struct{ vv, vs, sv binaryFunc }{
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
}

var fastUnary = [opCount]unaryFunc{
	Neg: negAVX2, Abs: absAVX2, Sqrt: sqrtAVX2, Rsqrt: rsqrtAVX2, Exp: expAVX2, Tanh: tanhAVX2, Erf: erfAVX2,
	Logistic: logisticAVX2, Gelu: geluAVX2,
}

var (
	fastWhere = whereAVX2
	fastSum   = sumAVX2
	fastMax   = reduceMaxAVX2
	fastMin   = reduceMinAVX2
	fastBools = boolsAVX2
)
