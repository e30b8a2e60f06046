// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/familiar_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <sstream>
#include <string_view>

#include "io/config/other_names.hpp"
#include "training/config/run_config.hpp"

namespace espalier {
namespace {

using Words = std::map<std::string, std::string_view>;

const std::string_view packing =
    "espalier data pack makes token files of text; those of nanoGPT and llm.c are read as they are";
const std::string_view evaluating =
    "espalier evaluate --checkpoint RUN --data FILE; espalier train evaluates on data.validation";
const std::string_view inspecting = "espalier checkpoint inspect, espalier data inspect";

const Words& familiar_commands() {
  static const Words words = {
      {"import", "espalier checkpoint import DIRECTORY reads a Hugging Face model; espalier data pack reads text"},
      {"convert",
       "espalier checkpoint import and export convert Hugging Face models; every layout reads every checkpoint; "
       "espalier data pack makes token files of text"},
      {"export", "espalier checkpoint export RUN writes a Hugging Face model"},
      {"tokenize", packing},
      {"tokenise", packing},
      {"prepare", packing},
      {"preprocess", packing},
      {"pack", packing},
      {"inspect", inspecting},
      {"info", inspecting},
      {"show", inspecting},
      {"resume", "espalier train CONFIG.toml: it resumes by itself"},
      {"finetune", "espalier train CONFIG.toml --init-from RUN"},
      {"fine-tune", "espalier train CONFIG.toml --init-from RUN"},
      {"pretrain", "espalier train CONFIG.toml"},
      {"run", "espalier train CONFIG.toml"},
      {"launch", "mpiexec -n 4 espalier train CONFIG.toml"},
      {"eval", evaluating},
      {"test", evaluating},
      {"perplexity", evaluating},
      {"logits", "espalier evaluate --checkpoint RUN --data FILE --logits FILE.npy"},
      {"validate",
       "espalier train CONFIG.toml --dry-run checks a config; espalier evaluate --checkpoint RUN --data FILE"},
      {"check", "espalier train CONFIG.toml --dry-run checks a config, espalier checkpoint verify a checkpoint"},
      {"sample", "espalier generate"},
      {"infer", "espalier generate"},
      {"inference", "espalier generate"},
      {"chat", "espalier generate"},
      {"benchmark", "espalier bench"},
      {"profile", "espalier train CONFIG.toml run.trace_steps=5, then espalier report RUN"},
      {"status", "espalier diagnose RUN, espalier report RUN"},
      {"plot", "espalier report RUN"},
      {"init", "examples/quickstart.toml is a config to start from; espalier train --keys prints every key"},
      {"config", "espalier train --keys prints every key of a config with its default"},
      {"version", "espalier --version"},
  };
  return words;
}

// Options of other programs that are no settings here.
const Words& other_options() {
  static const Words words = {
      {"bf16", "precision.compute=bf16"},
      {"cases", "published_cases TABLE.csv, a program of tests/published"},
      {"runnable", "leave it out: espalier plan recommends what train runs"},
      {"fp16", "precision.compute=fp16"},
      {"config", "the config is an argument without a name: espalier train CONFIG.toml"},
      {"load", "--resume DIRECTORY; without it a run resumes by itself"},
      {"checkpoint", "--resume DIRECTORY; without it a run resumes by itself"},
      {"resume_from_checkpoint", "--resume DIRECTORY; without it a run resumes by itself"},
      {"epochs", "run.steps or run.tokens says how long to train"},
      {"num_epochs", "run.steps or run.tokens says how long to train"},
      {"np", "mpiexec -n N espalier train CONFIG.toml"},
      {"nproc", "mpiexec -n N espalier train CONFIG.toml"},
      {"nproc_per_node", "mpiexec -n N espalier train CONFIG.toml"},
      {"gpus", "mpiexec -n N espalier train CONFIG.toml gives each rank a GPU"},
      {"threads", "OMP_NUM_THREADS=N in the environment"},
      {"num_threads", "OMP_NUM_THREADS=N in the environment"},
      {"profile", "run.trace_steps=5, then espalier report RUN"},
  };
  return words;
}

// The keys of a config, each also by its last word where only one section has that.
const std::map<std::string, std::string>& config_keys() {
  static const std::map<std::string, std::string> keys = [] {
    std::map<std::string, std::string> found;
    std::string section;
    std::istringstream lines(to_toml(RunConfig{}));
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("["))
        section = line.substr(1, line.find(']') - 1);
      else if (const std::size_t equals = line.find(" = "); equals != std::string::npos && !line.starts_with("#")) {
        const std::string word = line.substr(0, equals);
        const std::string key = section + '.' + word;
        found[key] = key;
        found[word] = found.contains(word) ? "" : key;
      }
    return found;
  }();
  return keys;
}

}  // namespace

std::string hint_for_command(const std::string& word) {
  const auto found = familiar_commands().find(word);
  return found == familiar_commands().end() ? "" : std::string(found->second);
}

std::string hint_for_option(const std::string& option) {
  const std::size_t equals = option.find('=');
  std::string word = option.substr(0, equals);
  word.erase(0, word.find_first_not_of('-'));
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return c == '-' ? '_' : std::tolower(c); });
  if (const auto found = other_options().find(word); found != other_options().end())
    return std::string(found->second);
  std::string key(our_name_for(word.substr(word.find('.') + 1)));
  if (const auto own = config_keys().find(word); own != config_keys().end())
    key = own->second;
  if (key.empty())
    return "";
  return fmt::format("settings have no dashes: {}={}", key,
                     equals == std::string::npos ? "..." : option.substr(equals + 1));
}

}  // namespace espalier
