"""What transformers makes of a directory that a training wrote: the probability of HELPFUL.

    open.py DIR TEXT QUESTION EVIDENCE [BASE]

A T5 reads TEXT and its first decoder step's logits of the label tokens are compared; a BERT reads QUESTION and EVIDENCE
as a pair. With BASE, DIR is an adapter of the PEFT library over it, and the logit of the pair is given. Prints a line of
JSON: the number, and what from_pretrained says of missing, unexpected and mismatched weights."""
import json, os, sys
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, PreTrainedTokenizerFast, T5ForConditionalGeneration

d, text, question, evidence = sys.argv[1:5]
base = sys.argv[5] if len(sys.argv) > 5 else None
home = base or d
special = dict(unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", model_input_names=["input_ids", "token_type_ids", "attention_mask"])
config = AutoConfig.from_pretrained(home)
if os.path.exists(f"{home}/tokenizer_config.json"):
    t = AutoTokenizer.from_pretrained(home)
else:  # a base without one gets none
    t = PreTrainedTokenizerFast(tokenizer_file=f"{home}/tokenizer.json", **({} if config.model_type == "t5" else special))
info = {}
with torch.no_grad():
    if base:
        from peft import PeftModel
        m = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
        m = PeftModel.from_pretrained(m, d).eval()
        p = m(**t(question, evidence, return_tensors="pt")).logits[0, 0].item()
    elif config.model_type == "t5":
        m, info = T5ForConditionalGeneration.from_pretrained(d, output_loading_info=True)
        ids = t(text, return_tensors="pt")["input_ids"]
        start = torch.tensor([[m.config.decoder_start_token_id]])
        z = m.eval()(input_ids=ids, decoder_input_ids=start).logits[0, 0]
        labels = t.convert_tokens_to_ids(["[HELPFUL]", "[NOT_HELPFUL]"])
        p = torch.softmax(z[labels].float(), 0)[0].item()
    else:
        m, info = AutoModelForSequenceClassification.from_pretrained(d, output_loading_info=True)
        z = m.eval()(**t(question, evidence, return_tensors="pt")).logits[0].float()
        p = torch.softmax(z, 0)[m.config.label2id["[HELPFUL]"]].item()
print(json.dumps({"p": p, **{k: sorted(map(str, info.get(k, []))) for k in ("missing_keys", "unexpected_keys", "mismatched_keys")}}))
