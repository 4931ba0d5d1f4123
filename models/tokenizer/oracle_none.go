//go:build !daulet

package tokenizer

// oracle is the tokenizer as it is.
func oracle(_ string, _ []byte, t framed) (Tokenizer, error) { return t, nil }
