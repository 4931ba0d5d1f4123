// Package pipeline answers a question with evidence, as RAG² does (Sohn et al.,
// NAACL 2025, arXiv 2411.00300):
//
//	question → rationale → query vector → hits per corpus → ranked → kept → answer
//
// Pipeline.Ask runs the stages in this order and returns an Answer whose Trace
// holds every stage: done or skipped and why, how long it took, what came in and
// out. The command line, the server and the evaluator all call it and see the same.
//
//   - rationale: the language model reasons step by step (Prompt.Rationale, the
//     paper's constant); its explanation without the answer line is the query.
//   - retrieval: every corpus is asked at once for the same number of passages;
//     shards of one corpus are merged by score before the quota applies (Shards).
//     A corpus with fewer passages gives what it has; its quota goes to nobody.
//   - rerank and filter: run when a cross-encoder or a filter is configured.
//   - answer: one pass over the kept snippets. The option is extracted, never
//     guessed (Extract); citations name passages of the kept set only (Cite).
//
// A Pipeline may be used by many goroutines; its models serve calls one after the
// other where they must. Nothing is logged: questions are health data.
package pipeline
