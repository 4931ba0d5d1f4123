// Package tune is the work around training: pairs of questions and texts that answer
// them, hard negatives found by our own index, and the judgement of rerankers and
// filters on held-out questions with intervals.
//
// A Pair line names a question and the texts that answer it. Mine searches the corpora
// for each question and keeps, as negatives, the best hits that are no positives. Texts
// of the articles of a positive are never negatives. Relevance outside the positives is
// not known: some negatives are wrong, and --skip leaves out the first ranks, where they
// are frequent.
//
// Intervals are percentile bootstraps over questions, not over pairs: the pairs of a
// question depend on each other.
package tune
