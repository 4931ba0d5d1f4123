package main

import (
	"rag2/models"
	"rag2/models/tokenizer"

	"github.com/spf13/cobra"
)

// tokenize prints the ids of texts.
func (a *app) tokenize() *cobra.Command {
	var model string
	var limit int
	var plain, names bool
	c := &cobra.Command{
		Use:   "tokenize",
		Short: `ids of texts: JSON lines {"text","pair"} in, {"ids","types","truncated"} out`,
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			t, err := a.openTokenizer(model)
			if err != nil {
				return err
			}
			type in struct {
				Text string  `json:"text"`
				Pair *string `json:"pair"`
			}
			type out struct {
				IDs       []int32  `json:"ids"`
				Types     []int32  `json:"types"`
				Tokens    []string `json:"tokens,omitempty"`
				Truncated int      `json:"truncated"`
			}
			return eachLine(c, 1, func(_ []int, batch []in) error {
				var e tokenizer.Encoding
				switch x := batch[0]; {
				case plain && x.Pair == nil:
					e.IDs = t.AppendPlain([]int32{}, x.Text)
					e.TypeIDs = make([]int32, len(e.IDs))
				case plain:
					return usagef("--plain takes no pairs")
				case x.Pair != nil:
					e = t.EncodePair(x.Text, *x.Pair, limit)
				default:
					e = t.EncodeSingle(x.Text, limit)
				}
				o := out{IDs: e.IDs, Types: e.TypeIDs, Truncated: e.Truncated}
				if names {
					for _, id := range e.IDs {
						o.Tokens = append(o.Tokens, t.Token(id))
					}
				}
				return writeLine(c, o)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&model, "model", "minilm", "a model of `rag2 models list`, a directory or a file")
	f.IntVar(&limit, "max-tokens", 0, "tokens at most, special ones included")
	f.BoolVar(&plain, "plain", false, "without special tokens")
	f.BoolVar(&names, "tokens", false, "print the tokens too")
	return c
}

// openTokenizer loads the tokenizer of a model by name or path.
func (a *app) openTokenizer(name string) (tokenizer.Tokenizer, error) {
	dir, err := a.modelDir(name)
	if err != nil {
		return nil, err
	}
	return models.OpenTokenizer(dir)
}
