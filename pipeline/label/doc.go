// Package label makes the training labels of RAG²'s filter from perplexities (Sohn et
// al., NAACL 2025, section 3.2).
//
// For a question q the language model writes a rationale; t are the tokens of its
// explanation, the answer line cut off. For each candidate snippet d
//
//	PPL(without) = exp(−(1/L) Σ log P(tᵢ | chat(prompt(q)), t<ᵢ))
//	PPL(with)    = exp(−(1/L) Σ log P(tᵢ | chat(d + prompt(q)), t<ᵢ))
//	ΔPPL         = PPL(without) − PPL(with)
//
// over the same token ids, and the model answers q once more, given d. Whether both
// answers are right and whether ΔPPL reaches the threshold τ decide the label (Table).
// τ is the ⌈n/4⌉-th largest finite ΔPPL of the n pairs that have one; ties with τ reach it.
//
// A Labeler does this for a list of Items. Every finished piece of work (a question's
// rationale, a pair) is a line of a journal beside the output; a process that was
// killed takes up where it stopped and the file is the same, byte by byte, as without
// the interruption, provided that the model gives the same for the same request. The
// file (JSON lines, see File) holds all that a label was computed from; Relabel
// computes labels from it anew without the model.
//
// Questions and texts are in these files and are never logged.
package label
