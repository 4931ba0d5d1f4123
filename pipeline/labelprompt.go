package pipeline

// RationalePrompt is the prompt to which the rationale of a question is written.
func (p *Prompts) RationalePrompt(q Question) (string, error) {
	return p.render("rationale", promptData{Question: q.Render(), Options: len(q.Options) > 0})
}

// EvidencePrompt is the rationale prompt with one snippet before it: the context
// "with d" of perplexity labels.
func (p *Prompts) EvidencePrompt(q Question, title, text string) (string, error) {
	base, err := p.RationalePrompt(q)
	if err != nil {
		return "", err
	}
	return p.WithEvidence(base, title, text)
}

// WithEvidence puts one snippet before a prompt.
func (p *Prompts) WithEvidence(prompt, title, text string) (string, error) {
	return p.render("evidence", promptData{Question: prompt, Snippets: []promptSnippet{{1, title, text}}})
}
