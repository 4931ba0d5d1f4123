// Package bert is the BERT encoder (Devlin et al. 2019) as a GoMLX graph: word,
// position and token-type embeddings, post-norm transformer layers with exact
// GELU, and a head that is the CLS vector, the mean over tokens, or one logit of
// a sequence classifier. It reads Hugging Face checkpoints (BertModel,
// BertForSequenceClassification).
//
// A Model is safe for concurrent use. A text's result does not depend on the
// other texts of its batch.
package bert
