// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/training_state.hpp"

#include <fmt/format.h>

#include <set>
#include <sstream>

#include "core/ops/finite.hpp"
#include "core/ops/matmul_library.hpp"
#include "parallel/collectives/agreement.hpp"
#include "parallel/collectives/texts.hpp"
#include "training/checkpoint/next_loss.hpp"
#include "training/checkpoint/sharded_save.hpp"
#include "training/checkpoint/stored_state.hpp"
#include "training/config/stored_config.hpp"
#include "training/step/kept_kernels.hpp"

namespace espalier {
namespace {

template <class T>
std::vector<IndexRange> everything(const ParameterStore<T>& parameters) {
  return {{0, parameters.flat_size()}};
}

template <class T>
FlatArray<T> weights_of(const ParameterStore<T>& parameters) {
  return {"weights", parameters.weights().values(), parameters.weights().held()};
}

template <class T>
FlatArray<State<T>> masters_of(const ParameterStore<T>& parameters, const AdamW<T>& optimizer) {
  if constexpr (has_masters<T>)
    return {"weights", optimizer.masters(), optimizer.owned()};
  else
    return weights_of(parameters);
}

template <class T>
std::array<FlatArray<State<T>>, 2> moments_of(const AdamW<T>& optimizer) {
  return {
      {{"exp_avg", optimizer.exp_avg(), optimizer.owned()}, {"exp_avg_sq", optimizer.exp_avg_sq(), optimizer.owned()}}};
}

template <class P>
nlohmann::json state_of(const Trainer<P>& trainer, const RunConfig& config) {
  nlohmann::json passed_over = nlohmann::json::array();
  for (const IndexRange& samples : trainer.passed_over())
    passed_over.push_back({samples.begin, samples.end});
  nlohmann::json state = {{"step", trainer.steps_done()},
                          {"data_position", trainer.data_position()},
                          {"tokens", trainer.tokens()},
                          {"passed_over", passed_over},
                          {"loss", trainer.last_loss()},
                          {"tokenizer", trainer.tokenizer()},
                          {"seed", config.run.seed},
                          {"config", to_toml(config)},
                          {"matmul", to_string(matmul_library())},
                          {"kokkos", KOKKOS_VERSION},
                          {"loss_scale", trainer.loss_scaler().state()},
                          {"spike_guard", trainer.spike_guard().state()}};
  if (!trainer.data_files().is_null())
    state["data_files"] = trainer.data_files();
  return state;
}

template <class T>
std::vector<std::string> names_of(const ParameterStore<T>& parameters) {
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters.parameters())
    names.push_back(parameter.spec.name);
  return names;
}

// Without what a forward pass would tell.
template <class P>
CheckpointInfo info_of(const Trainer<P>& trainer, const RunConfig& config, const ProcessMesh& mesh,
                       const std::string& run_name, const std::string& owner) {
  CheckpointInfo info;
  info.owner = owner;
  info.run = run_name;
  info.step = trainer.steps_done();
  info.layout = {mesh.layout().text(), mesh.world().size()};
  info.state = state_of(trainer, config);
  return info;
}

// Of every rank all that it holds: replicas as well, which nobody writes.
template <class P>
void require_finite_state(const Trainer<P>& trainer, const Communicator& world) {
  attempt_together(world, ExitCode::numerical, [&] {
    for (const CountedArray<State<Compute<P>>>& counted : counted_arrays(trainer, {}))
      if (const std::string tensor = not_finite_tensor(ExecSpace(), trainer.parameters().parameters(), counted.array);
          !tensor.empty())
        throw Error(
            ExitCode::numerical,
            {.what = "the training diverged: an update left numbers that are not finite",
             .where = fmt::format("{}, after step {}", tensor, trainer.steps_done()),
             .got = "nan or inf",
             .wanted = "finite numbers",
             .todo =
                 "nothing was saved of this step; lower optimizer.learning_rate or lengthen optimizer.warmup_steps"});
  });
}

template <class P>
void require_sound_moments(const CheckpointReader& checkpoint, const Trainer<P>& trainer) {
  const auto moments = moments_of(trainer.optimizer());
  const Index place = first_unsound_moment<State<Compute<P>>>(ExecSpace(), moments[0].data, moments[1].data);
  if (const std::string tensor = tensor_at(trainer.parameters().parameters(), moments[1], place); !tensor.empty())
    throw Error(ExitCode::checkpoint,
                {.what = "a checkpoint holds moments that no gradients leave",
                 .where = checkpoint.path().string(),
                 .got = "a negative second moment, or a first moment far above its root, in " + tensor,
                 .wanted = "the moments of an AdamW optimizer",
                 .todo = "use an older checkpoint"});
}

template <class P>
CountedArray<State<Compute<P>>> counted_weights(const Trainer<P>& trainer, const StateOwnership& ownership) {
  return {masters_of(trainer.parameters(), trainer.optimizer()),
          has_masters<Compute<P>> ? ownership.moments : ownership.weights};
}

}  // namespace

template <class T>
StateOwnership ownership_of_one(const ParameterStore<T>& parameters, bool is_writer) {
  return is_writer ? StateOwnership{everything(parameters), everything(parameters)} : StateOwnership{};
}

template <class P>
StateOwnership ownership_of(const Trainer<P>& trainer) {
  return {.weights = trainer.counted_weights(), .moments = trainer.counted_owned()};
}

template <class P>
std::vector<CountedArray<State<Compute<P>>>> counted_arrays(const Trainer<P>& trainer,
                                                            const StateOwnership& ownership) {
  std::vector<CountedArray<State<Compute<P>>>> arrays{counted_weights(trainer, ownership)};
  for (const FlatArray<State<Compute<P>>>& moments : moments_of(trainer.optimizer()))
    arrays.push_back({moments, ownership.moments});
  return arrays;
}

template <class P>
CheckpointInfo checkpoint_info(Trainer<P>& trainer, const RunConfig& config, const ProcessMesh& mesh,
                               const std::string& run_name, const std::string& owner) {
  require_finite_state(trainer, mesh.world());
  CheckpointInfo info = info_of(trainer, config, mesh, run_name, owner);
  if (nlohmann::json choices = gather_matmul_choices(mesh.world()); !choices.empty())
    info.state["matmul_kernels"] = std::move(choices);
  if (config.checkpoint.check_loss)
    store_next_loss(info.state, trainer);
  else if (trainer.steps_done() == config.total_steps())
    require_finite_loss(trainer);
  return info;
}

KeptCheckpoints kept_checkpoints(const RunConfig& config) {
  return {config.checkpoint.keep_last, config.checkpoint.keep_every};
}

template <class P>
Path save_training_state(const Path& directory, Trainer<P>& trainer, const RunConfig& config, const ProcessMesh& mesh,
                         const std::string& run_name, const StateOwnership& ownership, const std::string& owner) {
  const auto ours = view_state(ExecSpace(), trainer.parameters().parameters(), counted_arrays(trainer, ownership));
  return save_sharded(directory, checkpoint_info(trainer, config, mesh, run_name, owner), ours.blocks, ours.tensors,
                      mesh.world(), config.checkpoint.ranks_per_file, kept_checkpoints(config));
}

template <class P>
Path save_weights(const Path& directory, const Trainer<P>& trainer, const RunConfig& config, const ProcessMesh& mesh,
                  const std::string& run_name, const StateOwnership& ownership, const std::string& owner) {
  const auto ours = view_state<State<Compute<P>>>(ExecSpace(), trainer.parameters().parameters(),
                                                  {counted_weights(trainer, ownership)});
  return save_sharded(directory, info_of(trainer, config, mesh, run_name, owner), ours.blocks, ours.tensors,
                      mesh.world(), config.checkpoint.ranks_per_file);
}

template <class T>
std::vector<std::string> model_tensors(const Communicator& world, const ParameterStore<T>& parameters) {
  std::string ours;
  for (const Parameter& parameter : parameters.parameters())
    ours += parameter.spec.name + '\n';
  std::set<std::string> names;
  for (const std::string& lines : gather_texts(world, ours)) {
    std::istringstream stream(lines);
    for (std::string name; std::getline(stream, name);)
      names.insert(name);
  }
  return broadcast_texts(world, {names.begin(), names.end()}, 0);
}

// A checkpoint of another model is refused as a whole, before anything is read. Tensors of other stages are known by
// their names only.
template <class T>
void require_tensors(const CheckpointReader& checkpoint, const ParameterStore<T>& parameters,
                     const std::vector<std::string>& model_tensors) {
  const auto refuse = [&](const std::string& got, const std::string& wanted) {
    throw of_another_model(checkpoint, "", got, wanted);
  };
  for (const Parameter& parameter : parameters.parameters()) {
    const std::string name = stored_name("weights", parameter);
    if (!checkpoint.contains(name))
      refuse("no tensor " + name, name + " " + shape_text(parameter.spec.shape));
    if (checkpoint.tensor(name).global_shape != parameter.spec.shape)
      refuse(name + " " + shape_text(checkpoint.tensor(name).global_shape),
             name + " " + shape_text(parameter.spec.shape));
  }
  std::set<std::string> expected;
  for (const std::string& tensor : model_tensors) {
    expected.insert("weights/" + tensor);
    if (!checkpoint.contains("weights/" + tensor))
      refuse("no tensor weights/" + tensor, "all tensors of the model");
  }
  for (const TensorInfo& tensor : checkpoint.tensors())
    if (tensor.name.starts_with("weights/") && !expected.contains(tensor.name))
      refuse("a tensor " + tensor.name + " that the model has not", "only the model's tensors");
}

template <class T>
void require_tensors(const CheckpointReader& checkpoint, const ParameterStore<T>& parameters) {
  require_tensors(checkpoint, parameters, names_of(parameters));
}

template <class T>
void load_weights(const CheckpointReader& checkpoint, const ParameterStore<T>& parameters,
                  const std::vector<std::string>& model_tensors) {
  require_tensors(checkpoint, parameters, model_tensors);
  read_flat_arrays(ExecSpace(), checkpoint, parameters.parameters(), weights_of(parameters));
}

// Weights and masters, from a checkpoint or from elsewhere.
template <class P, class Source>
void read_weights(const Source& source, const Trainer<P>& trainer) {
  const ParameterStore<Compute<P>>& parameters = trainer.parameters();
  if constexpr (has_masters<Compute<P>>)
    read_flat_arrays(ExecSpace(), source, parameters.parameters(), weights_of(parameters),
                     masters_of(parameters, trainer.optimizer()));
  else
    read_flat_arrays(ExecSpace(), source, parameters.parameters(), weights_of(parameters));
}

template <class P>
void load_weights(const CheckpointReader& checkpoint, const Trainer<P>& trainer,
                  const std::vector<std::string>& model_tensors) {
  require_tensors(checkpoint, trainer.parameters(), model_tensors);
  read_weights(checkpoint, trainer);
}

template <class P>
void load_weights(const ReadBoxes& read, const Trainer<P>& trainer) {
  read_weights(read, trainer);
}

template <class T>
void load_weights(const CheckpointReader& checkpoint, const ParameterStore<T>& parameters) {
  load_weights(checkpoint, parameters, names_of(parameters));
}

template <class P>
void load_training_state(const CheckpointReader& checkpoint, Trainer<P>& trainer,
                         const std::vector<std::string>& model_tensors) {
  const StoredState state = read_state(checkpoint);
  load_weights(checkpoint, trainer, model_tensors);
  for (const FlatArray<State<Compute<P>>>& moments : moments_of(trainer.optimizer()))
    read_flat_arrays(ExecSpace(), checkpoint, trainer.parameters().parameters(), moments);
  require_sound_moments(checkpoint, trainer);
  trainer.restore(state.step, state.data_position, state.loss);
  trainer.loss_scaler().restore(checkpoint.state().at("loss_scale"));
  if (checkpoint.state().contains("spike_guard"))
    trainer.spike_guard().restore(checkpoint.state().at("spike_guard"));
  trainer.set_passed_over(state.passed_over);
}

#define ESPALIER_INSTANTIATE(T)                                                                                      \
  template StateOwnership ownership_of_one<T>(const ParameterStore<T>&, bool);                                       \
  template std::vector<std::string> model_tensors<T>(const Communicator&, const ParameterStore<T>&);                 \
  template void load_weights<T>(const CheckpointReader&, const ParameterStore<T>&, const std::vector<std::string>&); \
  template void load_weights<T>(const CheckpointReader&, const ParameterStore<T>&);                                  \
  template void require_tensors<T>(const CheckpointReader&, const ParameterStore<T>&);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

#define ESPALIER_INSTANTIATE(P)                                                                                      \
  template StateOwnership ownership_of<P>(const Trainer<P>&);                                                        \
  template std::vector<CountedArray<State<Compute<P>>>> counted_arrays<P>(const Trainer<P>&, const StateOwnership&); \
  template CheckpointInfo checkpoint_info<P>(Trainer<P>&, const RunConfig&, const ProcessMesh&, const std::string&,  \
                                             const std::string&);                                                    \
  template Path save_training_state<P>(const Path&, Trainer<P>&, const RunConfig&, const ProcessMesh&,               \
                                       const std::string&, const StateOwnership&, const std::string&);               \
  template Path save_weights<P>(const Path&, const Trainer<P>&, const RunConfig&, const ProcessMesh&,                \
                                const std::string&, const StateOwnership&, const std::string&);                      \
  template void load_training_state<P>(const CheckpointReader&, Trainer<P>&, const std::vector<std::string>&);       \
  template void load_weights<P>(const CheckpointReader&, const Trainer<P>&, const std::vector<std::string>&);        \
  template void load_weights<P>(const ReadBoxes&, const Trainer<P>&);
ESPALIER_FOR_PRECISIONS(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
