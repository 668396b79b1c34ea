"""Whole pretrained models of the Hugging Face hub, by name; nothing is downloaded."""

CLASSES = """
from transformers import AutoConfig, AutoModelForCausalLM


class Pretrained(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(name, config=AutoConfig.from_pretrained(name))

    def forward(self, tokens):
        return self.model(tokens).logits
"""

ROWS = """
gpt2_small_batch | net=Pretrained("gpt2") | self.net(x) | i50257:1x1023
gpt2_long | net=Pretrained("openai-community/gpt2") | self.net(x) | i50257:32x256
gpt2_wide_batch | net=Pretrained("gpt2") | self.net(x) | i50257:1024x32
gpt_neo_small_batch | net=Pretrained("EleutherAI/gpt-neo-2.7B") | self.net(x) | i50257:1x2047
gpt_neo | net=Pretrained("EleutherAI/gpt-neo-2.7B") | self.net(x) | i50257:32x256
gpt_neo_wide_batch | net=Pretrained("EleutherAI/gpt-neo-2.7B") | self.net(x) | i50257:512x32
opt_small_batch | net=Pretrained("facebook/opt-1.3b") | self.net(x) | i50272:1x2047
opt | net=Pretrained("facebook/opt-1.3b") | self.net(x) | i50272:32x256
opt_wide_batch | net=Pretrained("facebook/opt-1.3b") | self.net(x) | i50272:512x32
bart_small_batch | net=Pretrained("facebook/bart-large") | self.net(x) | i50265:1x1023
bart | net=Pretrained("facebook/bart-large") | self.net(x) | i50265:32x256
bart_wide_batch | net=Pretrained("facebook/bart-large") | self.net(x) | i50265:1024x32
bigbird_small_batch | net=Pretrained("google/bigbird-roberta-base") | self.net(x) | i50358:1x4095
bigbird | net=Pretrained("google/bigbird-roberta-base") | self.net(x) | i50358:32x256
bigbird_wide_batch | net=Pretrained("google/bigbird-roberta-base") | self.net(x) | i50358:1024x32
electra_small_batch | net=Pretrained("google/electra-small-discriminator") | self.net(x) | i30522:1x511
electra | net=Pretrained("google/electra-small-discriminator") | self.net(x) | i30522:32x256
electra_wide_batch | net=Pretrained("google/electra-small-discriminator") | self.net(x) | i30522:1024x32
reformer | net=Pretrained("google/reformer-enwik8") | self.net(x) | i258:32x256
reformer_wide_batch | net=Pretrained("google/reformer-enwik8") | self.net(x) | i258:1024x32
"""
