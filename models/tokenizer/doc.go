// Package tokenizer turns text into the ids of a model's vocabulary, in pure Go:
// WordPiece (BERT), byte-level BPE (GPT-2, Llama-3, Qwen2, SmolLM), SentencePiece unigram
// (T5) and SentencePiece BPE with byte fallback (Llama-2, Mistral), read from
// a Hugging Face tokenizer.json or a spiece.model, or built from the vocabulary of a GGUF
// file.
//
// Texts are user data: a string such as "[SEP]" or "<|im_end|>" inside a text is
// encoded as the characters it consists of, never as the control token of that
// name. Control tokens enter through templates (pairs, chat) alone, which cut
// their own text with SplitSpecial.
//
// A Tokenizer is safe for concurrent use. Invalid UTF-8 is read as U+FFFD.
package tokenizer
