#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Fine-tuning on conversations: packed, trained on by two ranks, and asked. test_conversations.sh ESPALIER COMMAND..., where
# COMMAND starts a program on two ranks.
espalier=$1; shift
two_ranks=("$@")
texts=$(dirname "$(realpath "$0")")/../io/text
source "$(dirname "$(realpath "$0")")/tiny_run.sh"

# A tokenizer with the tokens of ChatML; its template is a file.
mkdir chat
tokens='{"id":600,"content":"<|im_start|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},'
tokens+=${tokens/600/601}
tokens=$(sed 's/\(.*\)im_start/\1im_end/; s/,$//' <<<"$tokens")
sed "s/\"special\":true}\]/\"special\":true},$tokens]/" "$texts/gpt2_like.json" >chat/tokenizer.json
printf '%s' "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}" \
  "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}" >chat/chat_template.jinja
cat >chats.jsonl <<'JSON'
{"prompt": "Who?", "completion": "A tree."}
{"messages": [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "A wall."}]}
JSON
pack=("$espalier" data pack-conversations --tokenizer chat --sequence-length 64)

expect 0 "2 conversations" "${pack[@]}" --output chats.bin chats.jsonl
says "1 row of 64 tokens"
expect 0 "rows        1 of 64 tokens" "$espalier" data inspect chats.bin
expect 0 '"row_length": 64' "$espalier" data inspect chats.bin --json
expect 0 "2 documents" "$espalier" data convert chats.bin --output same.bin --format espalier
cmp chats.bin same.bin || fail "a converted file is another"
expect 3 "rows of 64 tokens" "$espalier" data convert chats.bin same.bin --output none.bin --format espalier
gzip -c chats.jsonl >zipped
expect 0 "2 conversations" "${pack[@]}" --output same.bin - <zipped
cmp chats.bin same.bin || fail "standard input gives another file"
expect 3 "rows of another length" "$espalier" train tiny.toml 'data.train=["chats.bin"]' model.vocab_size=602 run.directory=other
says "batch.sequence_length to 64"
rows=('data.train=["chats.bin"]' model.vocab_size=602 model.max_sequence_length=64 batch.sequence_length=64 run.directory=other)
expect 3 "see each other" "$espalier" train tiny.toml "${rows[@]}"
expect 3 "cannot be split by documents" "$espalier" train tiny.toml "${rows[@]}" data.documents=separate data.validation_fraction=0.5
[[ ! -e other ]] || fail "a refused run wrote something"

train=(tiny.toml 'data.train=["chats.bin"]' data.documents=separate model.vocab_size=602 model.max_sequence_length=64
       batch.global_batch_size=2 batch.micro_batch_size=1 optimizer.learning_rate=1e-2 run.steps=80 run.directory=chatty)
expect 0 "completed" "${two_ranks[@]}" "$espalier" train "${train[@]}" parallel.data=2
answers() { "$espalier" generate --checkpoint chatty --tokenizer chat --temperature 0 --max-tokens 30 "$@" >answer.txt 2>out.txt; }
answers --message 'Who?' || fail "generate --message"
[[ $(<answer.txt) == "A tree." ]] || fail "not the answer that it learned, and nothing else" answer.txt
answers --message 'Who?' --message 'What?' || fail "generate with two messages"
grep -qx "A wall." answer.txt || fail "the second message has no answer" answer.txt

# ---- What is wrong is named, and nothing is left of it ----
echo '{"messages": [{"role": "user", "content": "Nobody answers."}]}' >>chats.jsonl
expect 3 "chats.jsonl:3" "${pack[@]}" --output none.bin chats.jsonl
says "no answer" "--skip-bad"
expect 3 "standard input:3" "${pack[@]}" --output none.bin - <chats.jsonl
expect 3 "no file matches" "${pack[@]}" --output none.bin 'absent/*.jsonl'
expect 0 "1 line left out" "${pack[@]}" --output chats.bin --skip-bad chats.jsonl
expect 3 "no conversation is left" "$espalier" data pack-conversations --tokenizer chat --sequence-length 3 --output none.bin \
  --skip-bad chats.jsonl
expect 2 "would replace a text to pack" "${pack[@]}" --output chats.jsonl chats.jsonl
expect 2 "go together" "${pack[@]}" --output none.bin --validation-fraction 0.5 chats.jsonl
echo '{{ messages }}' >chat/chat_template.jinja
expect 3 "not supported" "${pack[@]}" --output none.bin chats.jsonl
says "<|im_start|>"
rm chat/chat_template.jinja
expect 2 "no chat template" "${pack[@]}" --output none.bin chats.jsonl
expect 2 "no chat template" "$espalier" generate --checkpoint chatty --tokenizer chat --message 'Who?'
for file in none.bin*; do [[ ! -e $file ]] || fail "$file was written"; done
